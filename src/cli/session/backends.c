/* SPDX-License-Identifier: Apache-2.0 */

/* See backends.h. */

#include "cli/session/backends.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli/backend_options.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/session/command.h"
#include "cli/session/own_command.h"
#include "cli/session/repl.h"
#include "cli/session/show.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STDIN_MAX = 16 << 20, CODE_MAX = 16 << 20 };

struct request {
    struct own_command own;
    bool json;
    const char *stdin_path;
    json_t *session;
    json_t *exec;
    struct buf code;
};

static void take_env(struct request *r, const char *text)
{
    const char *equals = strchr(text, '=');
    json_t *env = json_object_get(r->session, "env");
    if (!equals)
        options_wrong(exec_options.command, "env", text, "not KEY=VALUE");
    if (!env) {
        env = json_object();
        (void)json_object_set_new(r->session, "env", env);
    }
    cleanup_free char *name = xstrndup(text, (size_t)(equals - text));
    (void)json_object_set_new(env, name, session_text_json("--env", equals + 1));
}

/* One word of the command, quoted for the shell. */
static void take_word(struct request *r, const char *word)
{
    int bad = r->code.len ? buf_append_str(&r->code, " '") : buf_append_str(&r->code, "'");
    for (; *word && bad == 0; word++)
        bad = *word == '\'' ? buf_append_str(&r->code, "'\\''") : buf_append(&r->code, word, 1);
    if (bad < 0 || buf_append_str(&r->code, "'") < 0)
        options_misuse(exec_options.command, "the command is too long");
}

static void take(void *to, int key, char *value)
{
    struct request *r = to;
    uint64_t ms = 0;
    switch (key) {
    case BACKEND_URL:
        r->own.client.url = value;
        r->own.client.unix_path = NULL;
        r->own.client.is_default = false;
        break;
    case BACKEND_UNIX:
        r->own.client.unix_path = value;
        r->own.client.is_default = false;
        break;
    case BACKEND_OWN:
        r->own.is_wanted = true;
        break;
    case BACKEND_YES:
        r->own.is_given = true;
        break;
    case BACKEND_RULES:
        r->own.rules = value;
        break;
    case BACKEND_JSON:
        r->json = true;
        break;
    case BACKEND_NAME:
        (void)json_object_set_new(r->session, "backend", session_text_json("--backend", value));
        r->own.wish.backend = value;
        break;
    case BACKEND_STDIN:
        r->stdin_path = value;
        break;
    case BACKEND_ENV:
        take_env(r, value);
        break;
    case BACKEND_TIMEOUT:
        if (str_parse_duration_ms(value, &ms) < 0 || ms == 0)
            options_wrong(exec_options.command, "timeout", value,
                "not a duration such as 500ms, 30s, 5m or 2h");
        (void)json_object_set_new(r->exec, "timeout_ms", json_integer((json_int_t)ms));
        break;
    default:
        take_word(r, value);
    }
}

static int add_stdin(struct request *r, struct err *err)
{
    cleanup_buf struct buf bytes = {0};
    int result = input_read(r->stdin_path, STDIN_MAX, &bytes, err);
    json_t *text = result < 0 ? NULL : json_stringn(bytes.data ? bytes.data : "", bytes.len);
    if (result == 0 && !text)
        return err_set(err, ERR_INVALID, EINVAL, "stdin is not valid UTF-8");
    (void)json_object_set_new(r->exec, "stdin", text);
    return result;
}

static int exec_in(struct request *r, const char *id, struct err *err)
{
    cleanup_free char *path = client_path(id, "/exec", err);
    struct show show = {0};
    json_t *answer = NULL;
    if (!path)
        return -EINVAL;
    int result = r->json ? client_call(&r->own.client, "POST", path, r->exec, &answer, err)
                         : repl_exec(&r->own.client, id, r->exec, &show, err);
    if (answer) {
        show_json(answer);
        show.exit_status = show_exit_status(answer);
        json_decref(answer);
    }
    return result < 0 ? result : show.exit_status;
}

static int exec_once(void *context, struct consent *consent, struct err *err)
{
    struct request *r = context;
    json_t *session = NULL;
    struct err ignored = {0};
    int result = client_call(&r->own.client, "POST", "/v1/sessions", r->session, &session, err);
    if (result < 0)
        return result;
    const char *id = json_string_value(json_object_get(session, "id"));
    cleanup_free char *path = client_path(id ? id : "", "", err);
    result = path ? exec_in(r, id, err) : -EINVAL;
    json_t *answer = NULL;
    if (path)
        (void)client_call(&r->own.client, "DELETE", path, NULL, &answer, &ignored);
    json_decref(answer);
    json_decref(session);
    return result;
}

int backend_exec_run(const struct client *client, int argc, char **argv, struct err *err)
{
    struct request r = {.exec = json_object()};
    r.session = json_pack("{s:s}", "language", "bash");
    r.own = (struct own_command){.name = exec_options.command,
        .client = *client,
        .session = r.session,
        .run = exec_once,
        .context = &r};
    buf_init(&r.code, CODE_MAX);
    options_parse(&exec_options, argc, argv, take, &r);
    if (!r.code.len)
        options_misuse(exec_options.command, "missing argument COMMAND");
    (void)json_object_set_new(r.exec, "code", session_text_json("the command", r.code.data));
    int result = r.stdin_path ? add_stdin(&r, err) : 0;
    if (result == 0)
        result = own_command_run(&r.own, err);
    buf_done(&r.code);
    json_decref(r.exec);
    json_decref(r.session);
    return result;
}

static void show_backend(const json_t *one)
{
    const json_t *enforces = json_object_get(one, "enforces");
    const char *detail = json_string_value(json_object_get(one, "detail"));
    const json_t *latency = json_object_get(one, "latency_ms");
    (void)printf("%-16s %-7s %-12s", json_string_value(json_object_get(one, "name")),
        json_string_value(json_object_get(one, "kind")),
        json_string_value(json_object_get(one, "state")));
    if (json_is_integer(latency))
        (void)printf("%6lld ms  ", (long long)json_integer_value(latency));
    else
        (void)printf("%9s  ", "-");
    for (size_t i = 0; i < json_array_size(enforces); i++)
        (void)printf("%s%s", i ? " " : "", json_string_value(json_array_get(enforces, i)));
    if (detail && detail[0]) {
        (void)printf("\n    ");
        output_clean(detail, 200);
    }
    (void)printf("\n");
}

static void take_listing(void *to, int key, char *value)
{
    if (key == OPTION_NONE)
        options_misuse(backends_options.command, "unexpected argument `%.64s`", value);
    take(to, key, value);
}

static int list_once(void *context, struct consent *consent, struct err *err)
{
    struct request *r = context;
    json_t *answer = NULL;
    int result = client_call(&r->own.client, "GET", "/v1/backends", NULL, &answer, err);
    const json_t *list = json_object_get(answer, "backends");
    if (result == 0 && r->json)
        show_json(answer);
    for (size_t i = 0; result == 0 && !r->json && i < json_array_size(list); i++)
        show_backend(json_array_get(list, i));
    json_decref(answer);
    return result;
}

int backend_list_run(const struct client *client, int argc, char **argv, struct err *err)
{
    struct request r = {.own = {.name = backends_options.command,
                            .client = *client,
                            .wish.lists_all = true,
                            .run = list_once}};
    r.own.context = &r;
    options_parse(&backends_options, argc, argv, take_listing, &r);
    return own_command_run(&r.own, err);
}
