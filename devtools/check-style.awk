# SPDX-License-Identifier: BSD-3-Clause
#
# The line checks of check-style.sh. Input: source files, named relative to the root of the tree.
# Variable `tokens`: the table of forbidden tokens. One finding per line: FILE:LINE: RULE: text.

function report(line, rule, text) {
	printf "%s:%d: %s: %s\n", file, line, rule, text
}

function load_tokens(	line, part, n, token) {
	while ((getline line < tokens) > 0) {
		if (line ~ /^#/ || line == "")
			continue
		n = split(line, part, "\t")
		if (n != 4) {
			printf "%s: bad line, %d columns instead of 4: %s\n", tokens, n, line
			continue
		}
		token = part[2]
		ntokens++
		tok_text[ntokens] = token
		if (substr(token, length(token)) == "(")
			token = "(" substr(token, 1, length(token) - 1) ")[ \t]*[(]"
		else
			token = "(" token ")([^A-Za-z0-9_]|$)"
		tok_re[ntokens] = "(^|[^A-Za-z0-9_])" token
		tok_where[ntokens] = part[1]
		tok_but[ntokens] = part[3]
		tok_why[ntokens] = part[4]
	}
	if (ntokens == 0)
		printf "%s: no forbidden tokens read\n", tokens
}

# Length on the screen: a tab goes to the next column of eight; a UTF-8 sequence is one column.
function columns(text,	i, n, part, col) {
	gsub(/[\200-\277]/, "", text)
	n = split(text, part, "\t")
	col = 0
	for (i = 1; i <= n; i++) {
		col += length(part[i])
		if (i < n)
			col = (int(col / 8) + 1) * 8
	}
	return col
}

# The line without comments and with empty strings; in_comment is kept from line to line.
function code_of(text,	out, s, e) {
	out = ""
	while (text != "") {
		if (in_comment) {
			e = index(text, "*/")
			if (e == 0)
				return out
			text = substr(text, e + 2)
			in_comment = 0
			continue
		}
		if (!match(text, /["']|\/\*|\/\//))
			return out text
		s = RSTART
		out = out substr(text, 1, s - 1)
		if (substr(text, s, 2) == "//")
			return out
		if (substr(text, s, 2) == "/*") {
			in_comment = 1
			text = substr(text, s + 2)
			continue
		}
		if (!match(substr(text, s), /^("(\\.|[^"\\])*"|'(\\.|[^'\\])*')/))
			return out
		out = out substr(text, s, 1) substr(text, s, 1)
		text = substr(text, s + RLENGTH)
	}
	return out
}

function check_tokens(code,	i) {
	for (i = 1; i <= ntok; i++)
		if (code ~ tok_re[use[i]])
			report(FNR, "forbidden token", tok_text[use[i]] " - " tok_why[use[i]])
}

# A function body, in this style, opens and closes with a brace alone in the first column.
function check_function(code) {
	if (code ~ /^{[ \t]*$/) {
		body_start = FNR
		if (before ~ /^[a-z].*[ *][a-z_0-9]+\(.*\)$/ && before !~ /^[a-z_0-9]+\(/ &&
		    before !~ /(=|^typedef|^struct [a-z_0-9]+ *$)/)
			report(FNR - 1, "return type", "stands on a line of its own")
	} else if (code ~ /^}/ && body_start) {
		if (FNR - body_start - 1 > max_function)
			report(body_start, "function length",
			       FNR - body_start - 1 " lines; at most " max_function)
		body_start = 0
	}
	if (code !~ /^[ \t]*$/)
		before = code
}

function start_file(	i, base) {
	file = FILENAME
	is_c = file ~ /\.[ch]$/
	is_header = file ~ /\.h$/
	in_comment = 0
	body_start = 0
	before = ""
	spdx = 0
	doc = 0
	guard = ""
	guard_defined = 0
	base = file
	sub(/.*\//, "", base)
	want_guard = toupper(base)
	gsub(/[^A-Z0-9]/, "_", want_guard)
	is_public = file ~ /^(lib\/[a-z0-9_]+|config)\/crpc_[a-z0-9_]*\.h$/
	max_columns = is_c ? 100 : 120
	max_function = file ~ /^test\// ? 100 : 70
	max_lines = file ~ /^test\// ? 1500 : 800
	ntok = 0
	for (i = 1; i <= ntokens; i++)
		if (is_c && file ~ tok_where[i] && (tok_but[i] == "-" || file !~ tok_but[i]))
			use[++ntok] = i
}

function end_file() {
	if (file == "")
		return
	if (!spdx)
		report(1, "licence", "no SPDX-License-Identifier: BSD-3-Clause on top")
	if (is_header && (guard !~ ("(^|_)" want_guard "$") || !guard_defined))
		report(1, "header guard", "expected #ifndef and #define [PART_]" want_guard \
		       ", found '" guard "'")
	if (is_public && !doc)
		report(1, "manual", "a public header opens with a comment that holds @file")
	if (is_c && last_line > max_lines && !long_reason)
		report(1, "file length", last_line " lines; at most " max_lines)
}

BEGIN {
	load_tokens()
	file = ""
}

FNR == 1 {
	end_file()
	start_file()
	long_reason = 0
}

{
	last_line = FNR
	if (FNR <= 3 && /SPDX-License-Identifier: BSD-3-Clause/)
		spdx = 1
	if (FNR <= 12 && /This file is long because/)
		long_reason = 1
	if (/[ \t]$/)
		report(FNR, "white space", "at the end of the line")
	if (/\r/)
		report(FNR, "white space", "carriage return")
	# A text that users search for in the source stays in one piece.
	if (columns($0) > max_columns && !/^[ \t]*"([^"\\]|\\.)*"[,;)]*$/)
		report(FNR, "line length", columns($0) " columns; at most " max_columns)
	if (!is_c)
		next
	if (/^ +[^ *\\]/ && !in_comment)
		report(FNR, "indentation", "by spaces; use tabs")
	if (/@file/)
		doc = 1
	if (guard == "" && /^#ifndef /)
		guard = $2
	else if (guard != "" && $1 == "#define" && $2 == guard)
		guard_defined = 1
	if (/(^|[^A-Za-z0-9_])(TODO|FIXME|XXX|HACK)([^A-Za-z0-9_]|$)/)
		report(FNR, "open end", "finish it, or write it down as a limit in the guide")
	if (/^[ \t]*#[ \t]*include/)
		check_include()
	code = code_of($0)
	gsub(/volatile sig_atomic_t/, "sig_atomic_t", code)
	check_tokens(code)
	check_function(code)
}

# Which folders may see which headers from outside; ours are kept apart by their include paths.
function check_include(	name) {
	name = $0
	sub(/^[^<"]*[<"]/, "", name)
	sub(/[>"].*/, "", name)
	# The one file that measures verbs themselves.
	if (name ~ /^infiniband\// && file !~ /^(drivers|test)\// && file != "apps/rpcbench/net_verbs.c")
		report(FNR, "dependency", name " - only drivers/ know verbs")
	if (name ~ /^rte_/ && file ~ /^lib\/(common|shm|ipc|spsc|tensor|tensor_ipc)\// &&
	    file != "lib/common/crpc_compat.h")
		report(FNR, "dependency", name " - this library runs without DPDK")
	if (name ~ /^rte_/ && file ~ /^drivers\/soft_mlx5\//)
		report(FNR, "dependency", name " - a preloaded library cannot count on DPDK")
	if (name ~ /\.\.\//)
		report(FNR, "dependency", name " - no paths upwards; meson gives the include paths")
}

END {
	end_file()
}
