/* SPDX-License-Identifier: Apache-2.0 */

/* The walk over the tree of shfmt. The input is a text, a NUL, and a tree; texts in the text
 * get the same tree. What comes out is JSON that can be an effect, and a command that is not
 * known lasts for no longer than once. */

#include "approval/effect.h"
#include "approval/shell.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct tree {
    const char *data;
    size_t size;
};

static int parse(void *context, const char *text, size_t len, json_t **ret)
{
    const struct tree *tree = context;
    *ret = json_loadb(tree->data, tree->size, JSON_REJECT_DUPLICATES, NULL);
    return *ret ? 0 : -EBADMSG;
}

static void check(const struct shell_command *c)
{
    struct effect effect = {0};
    json_t *fields = json_pack("{s:s, s:O, s:O, s:O, s:O, s:s, s:s?}", "backend", "b", "argv",
        c->argv, "grant", c->grant, "redirections", c->redirections, "files", c->files, "cwd",
        c->cwd, "danger", c->danger);
    if (!fields || json_array_size(c->argv) == 0)
        abort();
    if (effect_make(EFFECT_HOST_EXEC, fields, &effect, NULL) == 0)
        effect_done(&effect);
    json_decref(fields);
    if (json_is_object(json_array_get(c->argv, 0)) && !c->is_once &&
        json_array_size(c->argv) == 1)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = memchr(data, 0, size);
    if (!end)
        return 0;
    char *text = strndup((const char *)data, (size_t)(end - data));
    struct tree tree = {(const char *)end + 1, size - (size_t)(end - data) - 1};
    struct shell_forms forms;
    if (shell_read(text, strlen(text), "/etc", parse, &tree, &forms) == 0) {
        for (size_t i = 0; i < forms.count; i++)
            check(&forms.items[i]);
        shell_forms_done(&forms);
    }
    free(text);
    return 0;
}
