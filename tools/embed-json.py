#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""embed-json.py BASE AREA...: writes a C header with one JSON text, {"base": …, "areas": […]}.

A file that is not JSON, and a schema that two files define, end the build."""
import json
import sys


def main():
    base, *areas = [json.load(open(name, encoding="utf-8")) for name in sys.argv[1:]]
    seen = set(base["schemas"])
    for name, area in zip(sys.argv[2:], areas):
        twice = seen & set(area.get("schemas", {}))
        if twice:
            sys.exit("%s: another file has the schema %s, too" % (name, sorted(twice)[0]))
        seen |= set(area.get("schemas", {}))
    text = json.dumps({"base": base, "areas": areas}, separators=(",", ":")).encode()
    print("/* Made by tools/embed-json.py. */")
    print("static const unsigned char openapi_areas[] = {")
    for at in range(0, len(text), 20):
        print(",".join(map(str, text[at:at + 20])) + ",")
    print("};")


main()
