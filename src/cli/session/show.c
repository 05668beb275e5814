/* SPDX-License-Identifier: Apache-2.0 */

/* See show.h. */

#include "cli/session/show.h"

#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *text_of(const json_t *object, const char *field)
{
    const char *text = json_string_value(json_object_get(object, field));
    return text ? text : "";
}

void show_json(const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(12));
    (void)printf("%s\n", text ? text : "");
    free(text);
}

void show_id(const json_t *session)
{
    (void)printf("%s\n", text_of(session, "id"));
}

void show_copies(const json_t *answer)
{
    const json_t *list = json_object_get(answer, "sessions");
    for (size_t i = 0; i < json_array_size(list); i++)
        show_id(json_array_get(list, i));
    if (!str_eq(text_of(answer, "memory"), "copied"))
        (void)fprintf(stderr, "hermes session: the copies have the files but fresh "
                              "interpreters: the memory of this "
                              "language cannot be copied\n");
}

void show_sessions(const json_t *answer)
{
    const json_t *list = json_object_get(answer, "sessions");
    (void)printf("%-30s %-10s %-8s %-20s %s\n", "ID", "LANGUAGE", "STATE", "EXPIRES", "NAME");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *s = json_array_get(list, i);
        (void)printf("%-30s %-10s %-8s %-20s %s\n", text_of(s, "id"), text_of(s, "language"),
            text_of(s, "state"), text_of(s, "expires_at"), text_of(s, "name"));
    }
}

void show_jobs(const json_t *answer)
{
    const json_t *list = json_object_get(answer, "jobs");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *job = json_array_get(list, i);
        (void)printf("%-4lld %-8s %s\n",
            (long long)json_integer_value(json_object_get(job, "id")), text_of(job, "state"),
            text_of(job, "command"));
    }
}

/* Prints a name without control characters, which could affect the terminal. */
static void show_name(const char *name)
{
    for (; *name; name++)
        (void)putchar((unsigned char)*name < 0x20 || *name == 0x7f ? '?' : *name);
}

void show_files(const json_t *listing)
{
    const json_t *list = json_object_get(listing, "entries");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *e = json_array_get(list, i);
        (void)printf("%-9s %s %12lld %s ", text_of(e, "type"), text_of(e, "mode"),
            (long long)json_integer_value(json_object_get(e, "size")), text_of(e, "mtime"));
        show_name(text_of(e, "name"));
        (void)printf("\n");
    }
    if (json_is_true(json_object_get(listing, "truncated")))
        (void)fprintf(stderr, "hermes session: the list is not complete: the server cut it\n");
}

int show_exit_status(const json_t *answer)
{
    static const struct {
        const char *status;
        int exit_status;
    } known[] = {{"ok", 0}, {"time_limit", 124}, {"memory_limit", 137}, {"output_limit", 153},
        {"cancelled", 130}, {"signaled", 137}, {"internal_error", 125}};
    const json_t *exit_code = json_object_get(answer, "exit_code");
    const char *status = text_of(answer, "status");
    if (str_eq(status, "runtime_error"))
        return json_is_integer(exit_code) && json_integer_value(exit_code)
                   ? (int)(json_integer_value(exit_code) & 0xff)
                   : 1;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (str_eq(known[i].status, status))
            return known[i].exit_status;
    }
    return 125;
}

void show_checkpoint(const json_t *checkpoint)
{
    (void)printf("%s\n", text_of(checkpoint, "name"));
}

void show_checkpoints(const json_t *answer)
{
    const json_t *list = json_object_get(answer, "checkpoints");
    if (json_array_size(list))
        (void)printf("%-20s  %-20s  %s\n", "NAME", "CREATED", "EXECS");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        (void)printf("%-20s  %-20s  %lld\n", text_of(one, "name"), text_of(one, "created_at"),
            (long long)json_integer_value(json_object_get(one, "execution_count")));
    }
}

static void put(FILE *to, const json_t *text)
{
    (void)fwrite(json_string_value(text), 1, json_string_length(text), to);
    (void)fflush(to);
}

/* Prints the text of a display and lists its other types. */
static void show_bundle(const json_t *bundle)
{
    const json_t *text = json_object_get(bundle, "text/plain");
    const char *kind;
    json_t *data;
    if (json_is_string(text)) {
        put(stdout, text);
        (void)printf("\n");
    }
    json_object_foreach((json_t *)bundle, kind, data)
    {
        if (!str_eq(kind, "text/plain") && !str_eq(kind, "t")) /* "t" is the event's time */
            (void)printf("[%s, %zu bytes]\n", kind, json_string_length(data));
    }
    (void)fflush(stdout);
}

static void show_error(const json_t *error)
{
    const json_t *lines = json_object_get(error, "traceback");
    (void)fflush(stdout);
    for (size_t i = 0; i < json_array_size(lines); i++)
        (void)fprintf(stderr, "%s\n", json_string_value(json_array_get(lines, i)));
    if (!json_array_size(lines))
        (void)fprintf(stderr, "%s: %s\n", text_of(error, "name"), text_of(error, "value"));
}

void show_event(void *context, const char *name, const json_t *data)
{
    struct show *show = context;
    if (str_eq(name, "stdout")) {
        put(stdout, json_object_get(data, "data"));
    } else if (str_eq(name, "stderr")) {
        put(stderr, json_object_get(data, "data"));
    } else if (str_eq(name, "display") || str_eq(name, "result")) {
        show_bundle(data);
    } else if (str_eq(name, "error")) {
        show_error(data);
    } else if (str_eq(name, "end")) {
        const char *message = text_of(data, "message");
        show->exit_status = show_exit_status(data);
        show->state_lost = json_is_true(json_object_get(data, "state_lost"));
        if (message[0])
            (void)fprintf(stderr, "hermes: %s\n", message);
    }
}
