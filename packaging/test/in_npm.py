"""The npm package in a folder of nobody's: the demo by npx, memory as a test, reporters, pages of Chromium, and nothing left
when it is removed.

Not here: what `check` judges (faces/check).
"""

import os

from test import places

# What drives Chromium, by version and hash (`make browser-deps`); a user's own is Playwright or Puppeteer.
DRIVER = "evidence/view/tests/browser/node_modules/playwright-core"

SCRIPT = r"""
export npm_config_cache="$HOME/npm-cache" npm_config_update_notifier=false npm_config_fund=false npm_config_audit=false
mkdir app && cd app
echo '{ "name": "app", "version": "1.0.0", "private": true, "type": "module" }' > package.json
cp package.json before.json
# In one line.
npm install --silent --offline --no-save "$GIVEN"/skinflint-*.tgz
npx --offline skinflint --version
PATH="$HOME/app/node_modules/.bin:$PATH" sh "$GIVEN/demo.sh" "$GIVEN/demo.sql"
cp "$GIVEN/gate.mjs" gate.test.mjs
node --test --test-reporter=tap gate.test.mjs > gate.txt 2>&1 || { cat gate.txt; exit 1; }
grep -E '^# (pass|fail) ' gate.txt
cp "$GIVEN/reporters.mjs" reporters.test.mjs
node --test --test-reporter=tap reporters.test.mjs > reporters.txt 2>&1 || { cat reporters.txt; exit 1; }
grep -E '^# (pass|fail) ' reporters.txt
node -e 'import("skinflint/pages").then(({ holdPage }) => process.exit(holdPage ? 0 : 1))'
if test -d "$GIVEN/playwright-core"; then
    cp "$GIVEN/pages.mjs" pages.test.mjs
    cp -r "$GIVEN/playwright-core" node_modules/
    node --test --test-reporter=tap pages.test.mjs > pages.txt 2>&1 || { cat pages.txt; exit 1; }
    grep -E '^# (pass|fail) ' pages.txt
    rm -r node_modules/playwright-core
else
    echo "pages of Chromium: not run, as there is no chromium"
fi
npm uninstall --silent --offline --no-save skinflint
test -z "$(find node_modules -type f ! -name .package-lock.json 2>/dev/null)"
diff package.json before.json
echo "removed without a rest"
"""


def test(dist):
    given = [places.package(dist, f"skinflint-{dist.version}.tgz"), *places.own(dist, "demo.sh", "gate.mjs", "reporters.mjs", "pages.mjs")]
    driver = os.path.join(dist.root, DRIVER)
    if os.path.exists("/usr/bin/chromium") and os.path.exists(driver):
        given.append(driver)
    yield from places.as_nobody(dist, SCRIPT, given).splitlines()
