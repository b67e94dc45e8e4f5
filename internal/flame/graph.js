(function () {
	"use strict";
	var svg = document.getElementById("flame");
	var frames = Array.prototype.map.call(svg.querySelectorAll(".f"), function (g) {
		var title = g.querySelector("title").textContent;
		return {
			g: g, rect: g.querySelector("rect"), text: g.querySelector("text"), title: title,
			name: title.slice(0, title.lastIndexOf(" (")),
			x: +g.dataset.x, w: +g.dataset.w, d: +g.dataset.d, v: +g.dataset.v
		};
	});
	var root = frames[0], full = root.w, wanted = null;

	function byID(id) { return svg.querySelector("#" + id); }

	function clip(name, width) {
		var room = Math.floor((width - 6) / 7);
		if (name.length <= room) return name;
		return room < 3 ? "" : name.slice(0, room - 2) + "..";
	}

	// zoom makes a function as wide as the picture; those that led to it stay below.
	function zoom(to) {
		var scale = full / to.w, slack = 1e-3;
		frames.forEach(function (f) {
			var within = f.x >= to.x - slack && f.x + f.w <= to.x + to.w + slack && f.d >= to.d;
			var below = f.d < to.d && f.x <= to.x + slack && f.x + f.w >= to.x + to.w - slack;
			f.g.classList.toggle("away", !within && !below);
			f.g.classList.toggle("above", below);
			var x = below ? 0 : (f.x - to.x) * scale, w = below ? full : f.w * scale;
			f.rect.setAttribute("x", x);
			f.rect.setAttribute("width", w);
			f.text.setAttribute("x", x + 3);
			f.text.textContent = clip(f.name, w);
		});
	}

	// search marks functions, and tells the share of what they are in, each part once.
	function search(word) {
		var matches = null;
		try { matches = word ? new RegExp(word) : null; } catch (e) { matches = { test: function (s) { return s.indexOf(word) >= 0; } }; }
		var end = [], sum = 0;
		frames.forEach(function (f) {
			var found = matches !== null && f !== root && matches.test(f.name);
			f.g.classList.toggle("found", found);
			if (!found) return;
			var inside = end.some(function (o) { return o.d < f.d && o.x <= f.x + 1e-3 && o.x + o.w >= f.x + f.w - 1e-3; });
			if (!inside) { sum += f.v; end.push(f); }
		});
		byID("matched").textContent = matches ? "matched: " + (100 * sum / Math.max(1, root.v)).toFixed(2) + "%" : " ";
		byID("search").textContent = matches ? "clear" : "search";
		wanted = matches ? word : null;
	}

	function ask() {
		if (wanted !== null) { search(""); return; }
		var word = prompt("Functions to look for (regular expression)", "");
		if (word) search(word);
	}

	frames.forEach(function (f) {
		f.g.addEventListener("click", function () { zoom(f); });
		f.g.addEventListener("mouseover", function () { byID("details").textContent = f.title; });
		f.g.addEventListener("mouseout", function () { byID("details").textContent = " "; });
	});
	byID("reset").addEventListener("click", function () { zoom(root); });
	byID("search").addEventListener("click", ask);
	window.addEventListener("keydown", function (e) {
		if ((e.ctrlKey || e.metaKey) && e.key === "f") { e.preventDefault(); ask(); }
		if (e.key === "Escape") { zoom(root); search(""); }
	});
	window.flame = { search: search, zoom: function (name) { frames.some(function (f) { if (f.name === name) { zoom(f); return true; } return false; }); } };
})();
