/* SPDX-License-Identifier: Apache-2.0 */

/* The body of POST /v1/judge: any bytes give a spec whose tests and groups fit together, or an
 * error that names its reason. */

#include "judge/decode.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static struct runtime python = {
    .name = (char *)"python", .main_file = (char *)"main.py", .available = true};
static const struct runtime_registry runtimes = {.items = &python, .count = 1};

/* Stands for lang/runtime.c. */
const struct runtime *runtime_find(const struct runtime_registry *reg, const char *name)
{
    return strcmp(name, "python") == 0 ? &reg->items[0] : NULL;
}

static void check(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = {0};
    struct json_judge judge;
    json_t *body = NULL;
    if (json_run_parse((const char *)data, size, &body, &err) < 0)
        return 0;
    int r = json_judge_decode(body, &runtimes, NULL, true, &judge, &err);
    check(r == 0 || err.message[0]);
    for (size_t i = 0; r == 0 && i < judge.spec.test_count; i++) {
        const struct judge_test *test = &judge.spec.tests[i];
        check(test->name && test->group < (int)judge.spec.group_count);
    }
    for (size_t i = 0; r == 0 && i < judge.spec.group_count; i++) {
        for (size_t k = 0; k < judge.spec.groups[i].depends.count; k++)
            check(judge.spec.groups[i].depend_at[k] < i);
    }
    json_judge_done(&judge);
    json_decref(body);
    return 0;
}
