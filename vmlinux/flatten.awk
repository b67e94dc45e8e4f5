# The kernel is compiled with -fms-extensions (since 6.19): a member "struct
# name;" stands for the members of that struct. C without the extension takes it
# for a declaration and leaves the members out. Write them out instead.
#
# usage: awk -f flatten.awk HEADER HEADER

function emit(line, indent,    key, i) {
	if (line !~ /^\t+(struct|union) [A-Za-z0-9_]+;$/) {
		print indent line
		return
	}
	match(line, /^\t+/)
	indent = indent substr(line, 1, RLENGTH)
	key = substr(line, RLENGTH + 1, length(line) - RLENGTH - 1)
	print indent substr(key, 1, index(key, " ")) "{"
	for (i = 1; i < lines[key]; i++)
		emit(body[key, i], indent)
	print indent body[key, i]
}

# First reading: keep every definition.
NR == FNR && /^(struct|union) [A-Za-z0-9_]+ \{$/ {
	key = $1 " " $2
	next
}
NR == FNR {
	if (key)
		body[key, ++lines[key]] = $0
	if (/^}/)
		key = ""
	next
}

# Second reading.
{ emit($0, "") }
