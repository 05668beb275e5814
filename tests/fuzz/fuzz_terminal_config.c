/* SPDX-License-Identifier: Apache-2.0 */

/* A config.yaml: whatever it has, the rows that come out of it are whole. */

#include "state/place_table.h"
#include "state/terminal_config.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The same bytes are the file of a caller, and one of its variables. */
static const char *text;

static const char *variable(const char *name)
{
    return strcmp(name, "TERMINAL_DOCKER_VOLUMES") == 0 ? text : NULL;
}

static void read_own(
    const uint8_t *data, size_t size, struct strv *problems, struct strv *notes)
{
    const struct terminal_caller caller = {
        .variable = variable, .home = "/home/me", .cwd = "/home/me/work", .lists_all = true};
    struct terminal_own own = {0};
    char *copy = malloc(size + 1);
    if (!copy)
        abort();
    memcpy(copy, data, size);
    copy[size] = '\0';
    terminal_config_read_own(copy, size, &caller, &own, problems, notes);
    for (const char *at = own.sections.data; at && (at = strstr(at, "keys = ")); at++)
        if ((at == own.sections.data || at[-1] == '\n') && strncmp(at, "keys = *\n", 9) != 0)
            abort(); /* nothing adds a line of its own */
    terminal_own_done(&own);
    text = copy;
    terminal_config_read_own(NULL, 0, &caller, &own, problems, notes);
    terminal_own_done(&own);
    text = NULL;
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct place_table table;
    struct strv problems = {0}, notes = {0};
    table = (struct place_table){0};
    terminal_config_read((const char *)data, size, &table, &problems, &notes);
    for (uint32_t i = 0; i < table.count; i++)
        if (!place_kind_name(table.rows[i].kind) || strchr(table.rows[i].host, ' '))
            abort();
    place_table_check(&table, &problems);
    read_own(data, size, &problems, &notes);
    for (size_t i = 0; i < problems.count; i++)
        if (problems.items[i][strcspn(problems.items[i], "\n\r\033")])
            abort(); /* a message is one line */
    strv_done(&problems);
    strv_done(&notes);
    return 0;
}
