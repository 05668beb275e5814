/* SPDX-License-Identifier: Apache-2.0 */

/* A package as a taken-over server could write it, read as payload.c and collect.c do. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "box/package_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct package package;
    if (package_parse(data, size, &package) < 0)
        return 0;
    size_t at = 0;
    size_t strings = 0;
    while (package_string(&package, &at))
        strings++;
    if (strings != (size_t)package.head.argc + package.head.envc + package.head.globc)
        abort();
    struct package_file file;
    const char *name;
    const void *content;
    at = package.files_at;
    while (package_next_file(&package, &at, &file, &name, &content) == 1) {
        if (strlen(name) + 1 != file.name_len)
            abort();
        volatile char last = file.size ? ((const char *)content)[file.size - 1] : 0;
        (void)last;
    }
    return 0;
}
