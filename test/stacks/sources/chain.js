// Spins in leaf, three calls below the module.
"use strict";

function leaf(n) {
	let sum = 0;
	for (let i = 0; i < n; i++) sum = (sum + i * n) | 0;
	return sum;
}

function two(n) { return leaf(n) + 1; }
function one(n) { return two(n) + 1; }

// Call the functions until all tiers of the compiler have compiled them.
for (let i = 0; i < 20000; i++) one(100);
console.log("ready");
for (;;) one(10000000);
