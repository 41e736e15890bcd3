#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The tests of zoo, soak and fuzz themselves: those marked tool.
#
#   make test-tools   about 3 minutes on two cores
#   tools.sh          run them
#   tools.sh tested   succeed if these folders passed before: in this tree, or by tools-tested.txt
#   tools.sh record   write tools-tested.txt after a success
set -euo pipefail
cd "$(dirname "$0")/../.."
recorded=tests/system/tools-tested.txt
passed=build/tools.tested

digest() {
    find tests/zoo tests/soak tests/fuzz -type f '(' -name '*.py' -o -name '*.yaml' -o -name '*.json' ')' -print0 \
        | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -d ' ' -f 1
}

case "${1:-}" in
    tested) now=$(digest) && grep -qsx "$now" "$recorded" "$passed"; exit ;;
    record) [ "$(digest)" = "$(cat "$passed" 2>/dev/null)" ] && cp "$passed" "$recorded"; exit ;;
    "") ;;
    *) sed -n '3,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
sources=$(digest)
"${PYTHON:-python3}" -m pytest -n "$(nproc)" --dist loadfile -m 'tool and not slow' tests/zoo tests/soak tests/fuzz
mkdir -p build
echo "$sources" >"$passed"
