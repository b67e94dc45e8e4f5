(function () {
	"use strict";
	var svg = document.getElementById("flame"), group = byID("frames"), row = +svg.dataset.height;
	// In a page the picture is as wide as that, and as high as what is to be seen.
	var page = svg.parentNode.tagName === "MAIN", least = page ? 0.5 : 0;
	var frames = Array.prototype.map.call(svg.querySelectorAll(".f"), function (g) {
		var title = g.querySelector("title").textContent;
		return {
			g: g, rect: g.querySelector("rect"), text: g.querySelector("text"), title: title,
			name: title.slice(0, title.lastIndexOf(" (")), shown: null,
			x: +g.dataset.x, w: +g.dataset.w, d: +g.dataset.d, v: +g.dataset.v
		};
	});
	var root = frames[0], full = root.w, zoomed = root, searched = "";
	var deepest = frames.reduce(function (most, f) { return Math.max(most, f.d); }, 0);

	function byID(id) { return document.getElementById(id); }

	// clip leaves of a name what there is room for, without the folders of its package first.
	function clip(name, width) {
		var room = Math.floor((width - 6) / 7.3);
		if (name.length > room) name = name.replace(/^[^ (<\[]*\/(?=[^\/ (<\[]*\.)/, "");
		if (name.length <= room) return name;
		return room < 3 ? "" : name.slice(0, room - 2) + "..";
	}

	// show draws a function, or what is left of it where it is wider than the picture.
	function show(f, x, w, below) {
		f.g.classList.toggle("below", below);
		f.rect.setAttribute("x", x);
		f.rect.setAttribute("width", w > 2 ? w - 0.5 : w);
		f.text.setAttribute("x", x + 3);
		f.text.textContent = clip(f.name, w);
	}

	// zoom makes a function as wide as the picture; those that led to it stay below.
	function zoom(to) {
		var width = page ? svg.clientWidth : full, scale = width / to.w, slack = 1e-3, top = 0;
		zoomed = to;
		frames.forEach(function (f) {
			var below = f.d < to.d && f.x <= to.x + slack && f.x + f.w >= to.x + to.w - slack;
			var within = f.d >= to.d && f.x >= to.x - slack && f.x + f.w <= to.x + to.w + slack;
			var seen = below || within && f.w * scale >= least;
			if (seen !== f.shown) f.g.classList.toggle("away", !seen);
			f.shown = seen;
			if (!seen) return;
			top = Math.max(top, f.d);
			if (below) show(f, 0, width, true);
			else show(f, (f.x - to.x) * scale, f.w * scale, false);
		});
		if (!page) return;
		group.setAttribute("transform", "translate(0," + -(deepest - top) * row + ")");
		svg.setAttribute("height", (top + 1) * row);
		// With what led to it, as far as that has room below.
		var main = svg.parentNode;
		main.scrollTop = (top - to.d + 1 + Math.min(to.d, 8)) * row + 16 - main.clientHeight;
	}

	// search marks functions, and tells the share of what they are in, each part once.
	function search(word) {
		var matches = null, end = [], sum = 0;
		try { matches = word ? new RegExp(word) : null; } catch (e) { matches = { test: function (s) { return s.indexOf(word) >= 0; } }; }
		frames.forEach(function (f) {
			var found = matches !== null && f !== root && matches.test(f.name);
			f.g.classList.toggle("found", found);
			// Functions come with what they called behind them, so the last end is the one.
			if (!found || end.length && f.x + f.w <= end[end.length - 1] + 1e-3) return;
			sum += f.v;
			end.push(f.x + f.w);
		});
		byID("matched").textContent = matches ? "matched: " + (100 * sum / Math.max(1, root.v)).toFixed(2) + "%" : " ";
		if (!page) byID("search").textContent = matches ? "clear" : "search";
		searched = word;
	}

	function ask() {
		if (page) { byID("search").focus(); return; }
		if (searched) { search(""); return; }
		var word = prompt("Functions to look for (regular expression)", "");
		if (word) search(word);
	}

	function clear() {
		if (page) byID("search").value = "";
		zoom(root);
		search("");
	}

	frames.forEach(function (f) {
		f.g.addEventListener("click", function () { zoom(f); });
		f.g.addEventListener("mouseover", function () { byID("details").textContent = f.title; });
		f.g.addEventListener("mouseout", function () { byID("details").textContent = " "; });
	});
	byID("reset").addEventListener("click", function () { zoom(root); });
	if (page) byID("search").addEventListener("input", function (e) { search(e.target.value); });
	else byID("search").addEventListener("click", ask);
	window.addEventListener("keydown", function (e) {
		if ((e.ctrlKey || e.metaKey) && e.key === "f") { e.preventDefault(); ask(); }
		if (e.key === "Escape") clear();
	});
	if (page) {
		window.addEventListener("resize", function () { zoom(zoomed); });
		zoom(root);
	}
	// For scripts: zoom takes a name, and the widest of the functions that have it.
	window.flame = {
		search: search,
		zoom: function (name) {
			zoom(frames.reduce(function (best, f) { return f.name === name && (best === root || f.w > best.w) ? f : best; }, root));
		}
	};
})();
