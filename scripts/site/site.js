(function () {
	"use strict";
	var root = document.body.dataset.root, input = document.getElementById("search"), list = document.getElementById("results");
	var menu = document.getElementById("menu"), nav = document.getElementById("nav"), requested = false;

	menu.addEventListener("click", function () {
		var open = nav.classList.toggle("open");
		menu.setAttribute("aria-expanded", open);
	});

	// load fetches the index once, as a script, so that it also works for pages opened as files.
	function load() {
		if (requested) return;
		requested = true;
		var script = document.createElement("script");
		script.src = root + "search-index.js";
		script.onload = show;
		document.head.appendChild(script);
	}

	// score is 0 if a page lacks a word. Words in the title count most.
	function score(page, words) {
		var sum = 0, title = page.t.toLowerCase();
		for (var i = 0; i < words.length; i++) {
			var w = words[i];
			if (title === w) sum += 100;
			else if (title.indexOf(w) >= 0) sum += 20;
			else if (page.w.indexOf(" " + w + " ") >= 0) sum += 3;
			else if (page.w.indexOf(" " + w) >= 0) sum += 1;
			else return 0;
		}
		if (page.s === "Symptoms") sum += 2;
		if (page.s === "Schemas") sum -= 0.5;
		return sum;
	}

	function show() {
		var words = input.value.toLowerCase().split(/[^a-z0-9_]+/).filter(Boolean);
		list.textContent = "";
		list.hidden = !words.length || !window.searchIndex;
		if (list.hidden) return;
		var found = window.searchIndex.map(function (p) { return { p: p, n: score(p, words) }; })
			.filter(function (f) { return f.n > 0; }).sort(function (a, b) { return b.n - a.n; }).slice(0, 20);
		found.forEach(function (f) {
			var li = document.createElement("li"), a = document.createElement("a"), small = document.createElement("small");
			a.href = root + f.p.u;
			a.textContent = f.p.t;
			small.textContent = f.p.s;
			li.append(a, small);
			list.append(li);
		});
		if (!found.length) list.innerHTML = "<li>No page has all these words.</li>";
	}

	input.addEventListener("focus", load);
	input.addEventListener("input", function () { load(); show(); });
	input.addEventListener("keydown", function (e) {
		var first = list.querySelector("a");
		if (e.key === "Enter" && first) location.href = first.href;
		if (e.key === "Escape") { input.value = ""; show(); }
	});
	document.addEventListener("keydown", function (e) {
		if (e.key === "/" && document.activeElement !== input) { e.preventDefault(); input.focus(); }
	});
	var query = new URLSearchParams(location.search).get("q");
	if (query) { input.value = query; load(); }
})();
