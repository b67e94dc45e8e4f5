(function () {
	"use strict";
	var main = document.querySelector("main"), reset = document.getElementById("reset");
	var details = document.getElementById("details"), hint = details.textContent;
	var times = main.dataset.times.split(" "), columns = times.length;
	// What is visible of the time: from and to are columns.
	var from = 0, to = columns;
	var maps = Array.prototype.map.call(document.querySelectorAll("figure"), function (f) {
		var svg = f.querySelector("svg"), rows = svg.viewBox.baseVal.height;
		return { svg: svg, rows: rows, top: 0, height: rows, labels: f.querySelectorAll(".values span"), times: f.querySelector(".times") };
	});

	// draw shows the visible part of a map and labels its axes.
	function draw(m) {
		m.svg.setAttribute("viewBox", from + " " + m.top + " " + (to - from) + " " + m.height);
		var pixels = m.svg.clientHeight / m.height, last = -Infinity;
		Array.prototype.forEach.call(m.labels, function (l) {
			// data-row counts from the bottom; up is the height of its lower edge in the visible part.
			var up = m.svg.clientHeight - (m.rows - l.dataset.row - m.top) * pixels;
			var fits = up >= -1 && up <= m.svg.clientHeight && up - last >= 14;
			l.hidden = !fits;
			l.style.bottom = up + "px";
			if (fits) last = up;
		});
		var width = m.svg.clientWidth, step = Math.max(1, Math.ceil((to - from) / Math.max(1, Math.floor(width / 90))));
		m.times.textContent = "";
		for (var i = Math.ceil(from); i < to; i += step) {
			var x = (i - from) / (to - from) * width;
			if (i > from && x + 90 > width) break;
			var s = document.createElement("span");
			s.textContent = times[i];
			s.style.left = x + "px";
			m.times.appendChild(s);
		}
	}

	function drawAll() {
		maps.forEach(draw);
		reset.hidden = from === 0 && to === columns && maps.every(function (m) { return m.height === m.rows; });
	}

	function clear() {
		from = 0;
		to = columns;
		maps.forEach(function (m) { m.top = 0; m.height = m.rows; });
		drawAll();
	}

	// position returns the column and row at the pointer.
	function position(m, e) {
		var box = m.svg.getBoundingClientRect();
		var x = Math.min(1, Math.max(0, (e.clientX - box.left) / box.width));
		var y = Math.min(1, Math.max(0, (e.clientY - box.top) / box.height));
		return { x: from + x * (to - from), y: m.top + y * m.height };
	}

	// Dragging selects whole cells between two positions. Time is zoomed in all maps, values in one.
	maps.forEach(function (m) {
		var start = null, rect = null;
		function area(e) {
			var end = position(m, e);
			return {
				x: Math.floor(Math.min(start.x, end.x)), y: Math.floor(Math.min(start.y, end.y)),
				right: Math.min(to, Math.ceil(Math.max(start.x, end.x))), bottom: Math.min(m.top + m.height, Math.ceil(Math.max(start.y, end.y)))
			};
		}
		function isDrag(e) { return start && Math.abs(e.clientX - start.px) + Math.abs(e.clientY - start.py) > 8; }
		function stop() {
			start = null;
			if (rect) rect.remove();
			rect = null;
		}
		m.svg.addEventListener("pointerdown", function (e) {
			start = position(m, e);
			start.px = e.clientX;
			start.py = e.clientY;
			e.preventDefault();
		});
		window.addEventListener("pointermove", function (e) {
			if (!isDrag(e)) return;
			if (!rect) {
				rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
				rect.setAttribute("class", "chosen");
				m.svg.appendChild(rect);
			}
			var a = area(e);
			rect.setAttribute("x", a.x);
			rect.setAttribute("y", a.y);
			rect.setAttribute("width", a.right - a.x);
			rect.setAttribute("height", a.bottom - a.y);
		});
		window.addEventListener("pointerup", function (e) {
			if (isDrag(e)) {
				var a = area(e);
				from = a.x;
				to = a.right;
				m.top = a.y;
				m.height = a.bottom - a.y;
				drawAll();
			}
			stop();
		});
		window.addEventListener("pointercancel", stop);
		m.svg.addEventListener("dblclick", clear);
		m.svg.addEventListener("pointerover", function (e) {
			var title = e.target.querySelector("title");
			details.textContent = title ? title.textContent : hint;
		});
	});
	reset.addEventListener("click", clear);
	window.addEventListener("keydown", function (e) { if (e.key === "Escape") clear(); });
	window.addEventListener("resize", drawAll);
	drawAll();
	// For scripts: the visible columns.
	window.heatmap = { zoom: function (a, b) { from = a; to = b; drawAll(); }, reset: clear, range: function () { return [from, to]; } };
})();
