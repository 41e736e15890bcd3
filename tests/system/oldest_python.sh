#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The path of a Python of the oldest version that setup.cfg admits, which JetPack 6 has: from PATH, or kept by pyenv.
set -euo pipefail
version=$(sed -n 's/^python_requires = >=//p' "$(dirname "$0")/../../setup.cfg")
for python in "python$version" "$(pyenv root 2>/dev/null || true)/versions/$version".*/bin/python; do
  if "$python" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$version')" 2>/dev/null; then
    command -v "$python"
    exit
  fi
done
echo "no Python $version is here" >&2
exit 75
