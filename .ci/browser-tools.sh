#!/usr/bin/env bash
# Installs the distribution's Chromium for tests/report/test_page_browser.py, or says why it cannot: exit code 1.
# Playwright's own browsers are not needed: its wheel drives this one.
set -euo pipefail

without() {
    echo "browser-tools: pages will not be tested in a browser: $*" >&2
    exit 1
}
command -v chromium >/dev/null && exit 0
[ "$(id -u)" = 0 ] || without "chromium not found, and only root can install it"
command -v apt-get >/dev/null || without "chromium not found, and there is no apt-get to install it"
echo "browser-tools: installing chromium" >&2
{ timeout 120 apt-get update -qq && DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq \
    --no-install-recommends chromium fonts-dejavu-core; } >/dev/null || without "apt-get cannot install chromium"
