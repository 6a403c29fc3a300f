#!/bin/sh
# Checks every #include of the library and the program against the rooms of CONTRIBUTING.md.
#   check-rooms.sh [ROOT]
# The table "Rooms" there is the only list: one row per room, lowest first, with the rooms that it
# may include.  Every room may include its own headers and include/conr.h.  A row may only name
# rooms above it in the table, so arrows cannot run in circles.  Tests may include anything.
set -eu
root=${1:-$(dirname "$0")/..}
cd "$root"
find src cli -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | grep -v '_test\.cu\{0,1\}$\|/test_help\.[ch]$' |
    LC_ALL=C sort | xargs grep -Hn '^ *# *include *"' |
    awk -F: '
    # the table: | `room` | `a`, `b` | what |
    function read_table(   line, cell, name, list, n, i, rows) {
        while ((getline line < "CONTRIBUTING.md") > 0) {
            if (line ~ /^## /) inside = line == "## Rooms"
            if (!inside || line !~ /^\| *`/) continue
            split(line, cell, "|")
            name = plain(cell[2]); rows++
            if (!index(name, "/") || name ~ /^device\//) known[name] = rows
            n = split(plain(cell[3]), list, /, */)
            for (i = 1; i <= n; i++) {
                if (list[i] == "" || list[i] == "-") continue
                if (!(list[i] in known)) wrong("CONTRIBUTING.md: " name " may include " list[i] ", which is not a room above it in the table")
                allowed[name, list[i]] = 1
            }
        }
        if (!rows) wrong("CONTRIBUTING.md: has no table of rooms under \"## Rooms\"")
    }
    function plain(text) { gsub(/[` ]/, "", text); gsub(/,/, ", ", text); return text }
    function wrong(text) { print "check-rooms: " text > "/dev/stderr"; failed++ }
    # src/device/cpu/conv.c -> device/cpu; src/base/rng.h -> base; cli/main.c -> cli
    function room_of(path,   part, n) {
        sub(/^src\//, "", path)
        n = split(path, part, "/")
        return n > 2 && (part[1] "/" part[2]) in known ? part[1] "/" part[2] : part[1]
    }
    BEGIN { read_table() }
    {
        file = $1; header = $0
        sub(/^[^"]*"/, "", header); sub(/".*/, "", header)
        from = room_of(file); count++
        if (!(from in known)) wrong(file ":" $2 ": lies in " from ", which the table does not list")
        if (header == "conr.h" || header == "report_assets.h") next
        if (!index(header, "/")) {
            if (file ~ /^src\//) wrong(file ":" $2 ": \"" header "\": write the path from src/")
            next
        }
        to = room_of("src/" header)
        if (from != to && !((from, to) in allowed))
            wrong(file ":" $2 ": " from " may not include " header " (" to "); see \"Rooms\" in CONTRIBUTING.md")
    }
    END {
        if (!count) wrong("found no #include below src and cli")
        if (failed) exit 1
        print "check-rooms: " count " includes, all allowed"
    }'
