/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The package of one box: arguments, environment, files to write, globs to collect. All of it
 * is untrusted. It travels in a sealed memfd, and only processes with the payload's uid and no
 * capability parse it (box/payload.c, box/collect.c). run/package.c writes it. A zygote has a
 * package too, written by the trusted side.
 *
 * Layout, all integers native: struct package_header; argc + envc + globc strings, each ending
 * in NUL, in that order (strings_len bytes in all); padding to 8; then for each file struct
 * package_file, its name with NUL, padding to 8, its bytes, padding to 8. */

#include <stdint.h>

enum {
    PACKAGE_MAGIC = 0x484a4f42, /* "HJOB" */
    PACKAGE_MAX_ARGS = 4096,
    PACKAGE_MAX_ENV = 1024,
    PACKAGE_MAX_GLOBS = 64,
    PACKAGE_MAX_FILES = 4096,
};

struct package_header {
    uint32_t magic;
    uint32_t argc;
    uint32_t envc; /* each "KEY=value" */
    uint32_t globc;
    uint32_t filec;
    uint32_t collect_max_files;
    uint64_t collect_max_bytes;
    uint64_t strings_len;
};

struct package_file {
    uint32_t name_len; /* with its NUL */
    uint32_t executable;
    uint64_t size;
};

/* What the collector sends back on the collect pipe: a sequence of struct collect_record, each
 * followed by name_len bytes of name (no NUL) and size bytes of content, closed by one of kind
 * COLLECT_END. The reader must not trust it. */
enum collect_kind {
    COLLECT_FILE = 1,
    COLLECT_NOT_REGULAR, /* a link, fifo, socket or device: named, never opened */
    COLLECT_TOO_LARGE, /* larger than what is left of collect_max_bytes: size says how large, no
                          content */
    COLLECT_UNREADABLE, /* error has the errno */
    COLLECT_END, /* error is 0, -E2BIG when a cap cut the walk short, or another negative errno
                  */
};

struct collect_record {
    uint32_t kind;
    uint32_t name_len;
    uint32_t executable;
    int32_t error;
    uint64_t size; /* COLLECT_TOO_LARGE: size of the file; no bytes follow */
};
