/* SPDX-License-Identifier: Apache-2.0 */

/* The body of POST /v1/runs: any bytes give a spec or an error that names its reason. */

#include "run/decode.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static struct runtime python = {
    .name = (char *)"python", .main_file = (char *)"main.py", .available = true};
static const struct runtime_registry runtimes = {.items = &python, .count = 1};
static const struct mount_table mounts = {{{(char *)"data", (char *)"/srv", true}}, 1};

/* Stands for lang/runtime.c, which would bring the whole registry along. */
const struct runtime *runtime_find(const struct runtime_registry *reg, const char *name)
{
    return strcmp(name, "python") == 0 ? &reg->items[0] : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = {0};
    struct json_run run;
    json_t *body = NULL;
    if (json_run_parse((const char *)data, size, &body, &err) < 0) {
        if (err.code != ERR_INVALID || !err.message[0])
            abort();
        return 0;
    }
    if (json_run_decode(body, &runtimes, &mounts, &run, &err) < 0 && !err.message[0])
        abort();
    json_run_done(&run);
    json_decref(body);
    return 0;
}
