(function () {
	"use strict";
	var svg = document.getElementById("flame"), group = byID("frames"), row = +svg.dataset.height;
	// In a page, the graph is as wide as the page and as high as its visible rows.
	var page = svg.parentNode.tagName === "MAIN", minWidth = page ? 0.5 : 0;
	var frames = Array.prototype.map.call(svg.querySelectorAll(".f"), function (g) {
		var title = g.querySelector("title").textContent;
		return {
			g: g, rect: g.querySelector("rect"), text: g.querySelector("text"), title: title,
			name: title.slice(0, title.lastIndexOf(" (")), shown: null,
			x: +g.dataset.x, w: +g.dataset.w, d: +g.dataset.d, v: +g.dataset.v
		};
	});
	var root = frames[0], full = root.w, zoomed = root, searched = "";
	var deepest = frames.reduce(function (max, f) { return Math.max(max, f.d); }, 0);

	function byID(id) { return document.getElementById(id); }

	// clip shortens a name to a width. It removes the directories of the package first.
	function clip(name, width) {
		var maxLength = Math.floor((width - 6) / 7.3);
		if (name.length > maxLength) name = name.replace(/^[^ (<\[]*\/(?=[^\/ (<\[]*\.)/, "");
		if (name.length <= maxLength) return name;
		return maxLength < 3 ? "" : name.slice(0, maxLength - 2) + "..";
	}

	// show draws a function at x with a width. below is set for callers of the zoomed function.
	function show(f, x, w, below) {
		f.g.classList.toggle("below", below);
		f.rect.setAttribute("x", x);
		f.rect.setAttribute("width", w > 2 ? w - 0.5 : w);
		f.text.setAttribute("x", x + 3);
		f.text.textContent = clip(f.name, w);
	}

	// zoom makes a function as wide as the graph. Its callers stay visible below it.
	function zoom(to) {
		var width = page ? svg.clientWidth : full, scale = width / to.w, slack = 1e-3, top = 0;
		zoomed = to;
		frames.forEach(function (f) {
			var below = f.d < to.d && f.x <= to.x + slack && f.x + f.w >= to.x + to.w - slack;
			var within = f.d >= to.d && f.x >= to.x - slack && f.x + f.w <= to.x + to.w + slack;
			var visible = below || within && f.w * scale >= minWidth;
			if (visible !== f.shown) f.g.classList.toggle("hidden", !visible);
			f.shown = visible;
			if (!visible) return;
			top = Math.max(top, f.d);
			if (below) show(f, 0, width, true);
			else show(f, (f.x - to.x) * scale, f.w * scale, false);
		});
		if (!page) return;
		group.setAttribute("transform", "translate(0," + -(deepest - top) * row + ")");
		svg.setAttribute("height", (top + 1) * row);
		// Scroll so that the function and up to eight callers are visible.
		var main = svg.parentNode;
		main.scrollTop = (top - to.d + 1 + Math.min(to.d, 8)) * row + 16 - main.clientHeight;
	}

	// search marks matching functions and shows their share. Nested matches count once.
	function search(word) {
		var matches = null, end = [], sum = 0;
		try { matches = word ? new RegExp(word) : null; } catch (e) { matches = { test: function (s) { return s.indexOf(word) >= 0; } }; }
		frames.forEach(function (f) {
			var found = matches !== null && f !== root && matches.test(f.name);
			f.g.classList.toggle("found", found);
			// Callees follow their callers, so only the last end needs to be compared.
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
	// For scripts: zoom takes a name and selects the widest function with that name.
	window.flame = {
		search: search,
		zoom: function (name) {
			zoom(frames.reduce(function (best, f) { return f.name === name && (best === root || f.w > best.w) ? f : best; }, root));
		}
	};
})();
