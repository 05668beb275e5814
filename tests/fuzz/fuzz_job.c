/* SPDX-License-Identifier: Apache-2.0 */

/* A job as a taken-over server could write it, read as payload.c and collect.c do. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "box/package_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct job job;
    if (job_parse(data, size, &job) < 0)
        return 0;
    size_t at = 0;
    size_t strings = 0;
    while (job_string(&job, &at))
        strings++;
    if (strings != (size_t)job.head.argc + job.head.envc + job.head.globc)
        abort();
    struct job_file file;
    const char *name;
    const void *content;
    at = job.files_at;
    while (job_next_file(&job, &at, &file, &name, &content) == 1) {
        if (strlen(name) + 1 != file.name_len)
            abort();
        volatile char last = file.size ? ((const char *)content)[file.size - 1] : 0;
        (void)last;
    }
    return 0;
}
