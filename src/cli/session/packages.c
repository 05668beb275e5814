/* SPDX-License-Identifier: Apache-2.0 */

/* See packages.h. */

#include "cli/session/packages.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/progress.h"
#include "cli/session/show.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct installing {
    json_t *end;
    bool is_quiet; /* a terminal shows steps, not the log */
};

static void on_event(void *context, const char *name, const json_t *data)
{
    struct installing *in = context;
    const char *text = json_string_value(json_object_get(data, "text"));
    const char *step = json_string_value(json_object_get(data, "step"));
    if (str_eq(name, "end")) {
        progress_end();
        in->end = json_deep_copy(data);
    } else if (str_eq(name, "log") && text && !in->is_quiet) {
        (void)fputs(text, stderr);
    } else if (str_eq(name, "progress") && step && in->is_quiet) {
        progress_end();
        progress_begin("%s", step);
    }
}

static void show_installed(const json_t *answer)
{
    const json_t *list = json_object_get(answer, "installed");
    size_t i;
    json_t *package;
    json_array_foreach((json_t *)list, i, package)
    {
        const char *name = json_string_value(json_object_get(package, "name"));
        const char *version = json_string_value(json_object_get(package, "version"));
        (void)printf("%s %s\n", name ? name : "?", version ? version : "?");
    }
    if (!json_array_size(list))
        (void)printf("nothing to install: the session has all of it already\n");
}

int packages_install(const struct args *args, const char *manager, struct err *err)
{
    struct installing in = {.is_quiet = isatty(STDERR_FILENO) || args->json};
    cleanup_free char *path = client_path(args->words[0], "/packages", err);
    json_t *packages = json_array();
    for (int i = 1; i < args->count; i++)
        (void)json_array_append_new(packages, session_text_json("PACKAGE", args->words[i]));
    json_t *body = json_pack("{s:s, s:o}", "manager", manager, "packages", packages);
    int r = path ? client_stream(&args->client, path, body, on_event, &in, err) : -EINVAL;
    progress_end();
    json_decref(body);
    if (r == 0 && json_object_get(in.end, "error")) {
        cleanup_free char *text = json_dumps(in.end, JSON_COMPACT);
        r = client_refused(text, text ? strlen(text) : 0, 500, err);
    } else if (r == 0 && args->json) {
        show_json(in.end);
    } else if (r == 0) {
        show_installed(in.end);
    }
    json_decref(in.end);
    return r;
}
