#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""sum-reports.py REPORT_DIR [FAILED_RUNNER...]: adds up the JUnit reports of tools/test.sh. Names what failed
and ends with the line "N passed, N failed". A runner that failed without a failed test counts as one failure."""
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

passed = failed = skipped = 0
blamed = set()
reports = pathlib.Path(sys.argv[1])


def cases_of(report):
    try:
        return list(ElementTree.parse(report).iter("testcase"))
    except ElementTree.ParseError:
        return []


def name_of(case):
    return case.get("classname", ""), case.get("name")


def went_wrong(case):
    return bool({child.tag for child in case} & {"failure", "error"})


repeated = {}
for report in reports.glob("repeat-*.xml"):
    for case in cases_of(report):
        repeated[name_of(case)] = repeated.get(name_of(case), True) and not went_wrong(case)
for report in sorted(reports.glob("*.xml")):
    if report.stem.startswith("repeat-"):
        continue
    for case in cases_of(report):
        kinds = {child.tag for child in case}
        if went_wrong(case) and repeated.get(name_of(case)):
            passed += 1
            print(f"UNSTEADY {report.stem}: {case.get('classname', '')} {case.get('name')} passed when repeated")
        elif went_wrong(case):
            failed += 1
            blamed.add(report.stem)
            print(f"FAILED {report.stem}: {case.get('classname', '')} {case.get('name')}")
        elif "skipped" in kinds:
            skipped += 1
        else:
            passed += 1
if (reports / "vm.txt").exists():
    found = re.search(r"(\d+) passed, (\d+) failed\s*\Z", (reports / "vm.txt").read_text(errors="replace"))
    in_vm = list(map(int, found.groups())) if found else [0, 0]
    passed, failed = passed + in_vm[0], failed + in_vm[1]
    blamed |= {"vm"} if in_vm[1] else set()
    skipped += int((reports / "left-out").read_text())
for runner in sys.argv[2:]:
    if runner not in blamed:
        failed += 1
        print(f"FAILED {runner}: the runner itself failed, see above")
print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
sys.exit(1 if failed else 0)
