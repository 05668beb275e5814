/* SPDX-License-Identifier: Apache-2.0 */

/* See remote_run.h. The run is streamed: output is written as it comes. The answer becomes a
 * struct run_result, which is printed as for a run on this host. */

#include "cli/session/remote_run.h"

#include "base/alloc.h"
#include "base/base64.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "cli/input.h"
#include "cli/language.h"
#include "cli/limit_options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/run/input.h"
#include "cli/run/options.h"
#include "cli/run/output.h"
#include "cli/session/interrupt.h"
#include "network/policy.h"
#include "run/run.h"
#include "json/body.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    STDIN_MAX = 512 << 20, /* bytes; the server has its own limit */
    OUTPUT_MAX = 256 << 20,
    SIGNAL_MAX = 64,
};

struct remote_run {
    const struct run_args *args;
    struct client client;
    struct interrupter interrupter;
    struct run_result result;
    bool has_result;
    int output_error; /* negative errno once the program's output could not be written */
};

static json_t *base64_json(const char *data, size_t len)
{
    cleanup_free char *text = base64_text(data, len);
    return json_string_nocheck(text);
}

/* Appends the bytes of a base64 string. */
static void append_decoded(struct buf *to, const json_t *text)
{
    char *bytes = NULL;
    size_t len = 0;
    if (json_is_string(text) &&
        base64_decode(json_string_value(text), json_string_length(text), &bytes, &len) == 0)
        (void)buf_append(to, bytes, len);
    free(bytes);
}

static json_t *strings_json(const struct strv *v, struct err *err)
{
    json_t *list = json_array();
    for (size_t i = 0; i < v->count; i++) {
        if (json_array_append_new(list, json_string(v->items[i])) < 0)
            (void)err_set(err, ERR_INVALID, EINVAL, "`%s` is not valid UTF-8", v->items[i]);
    }
    return list;
}

static json_t *env_json(const struct strv *env)
{
    json_t *object = json_object();
    for (size_t i = 0; i < env->count; i++) {
        const char *equals = strchr(env->items[i], '=');
        cleanup_free char *key = xstrndup(env->items[i], (size_t)(equals - env->items[i]));
        if (json_object_set_new(object, key, json_string(equals + 1)) < 0)
            options_wrong(run_options.command, "env", env->items[i], "not valid UTF-8");
    }
    return object;
}

static bool list_has(const json_t *list, const char *word)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (str_eq(json_string_value(json_array_get(list, i)), word))
            return true;
    }
    return false;
}

/* Finds the language among those of the server: by its name, its alias or the extension of the
 * file. *ret is owned by the caller. */
static int find_language(
    const struct remote_run *run, const struct run_file *code, json_t **ret, struct err *err)
{
    const struct run_args *args = run->args;
    json_t *answer = NULL;
    bool by_extension = !args->language && language_has_extension(args->file);
    cleanup_free char *guess =
        args->language || by_extension ? NULL : language_guess(code->content, code->size);
    const char *name = args->language ? args->language : guess;
    int r = client_call(&run->client, "GET", "/v1/runtimes", NULL, &answer, err);
    if (r < 0)
        return r;
    const json_t *list = json_object_get(answer, "runtimes");
    *ret = NULL;
    for (size_t i = 0; i < json_array_size(list) && !*ret; i++) {
        json_t *one = json_array_get(list, i);
        if (by_extension
                ? list_has(json_object_get(one, "extensions"), strrchr(args->file, '.'))
                : name && (str_eq(json_string_value(json_object_get(one, "name")), name) ||
                              list_has(json_object_get(one, "aliases"), name)))
            *ret = json_incref(one);
    }
    json_decref(answer);
    if (*ret)
        return 0;
    if (args->language)
        return err_field(err, "--language", "the server does not have the language \"%.64s\"",
            args->language);
    return language_unknown(args->file, err);
}

static void add_files(json_t *body, const struct run_files *files)
{
    json_t *list = json_array();
    for (size_t i = 0; i < files->count; i++) {
        const struct run_file *file = &files->items[i];
        (void)json_array_append_new(
            list, json_pack("{s:s, s:o, s:s, s:b}", "name", file->name, "content",
                      base64_json(file->content, file->size), "encoding", "base64",
                      "executable", file->executable));
    }
    (void)json_object_set_new(body, "files", list);
}

/* The whole of stdin. A terminal is not read: its end is never known. */
static int add_stdin(const struct run_args *args, json_t *body, struct err *err)
{
    cleanup_buf struct buf content = {0};
    if (str_eq(args->file, "-") || isatty(STDIN_FILENO))
        return 0;
    int r = input_read("-", STDIN_MAX, &content, err);
    if (r < 0)
        return r;
    (void)json_object_set_new(
        body, "stdin", base64_json(content.data ? content.data : "", content.len));
    (void)json_object_set_new(body, "stdin_encoding", json_string("base64"));
    return 0;
}

/* Makes the body of POST /v1/runs. */
static int make_body(const struct remote_run *run, json_t **ret, struct err *err)
{
    const struct run_args *args = run->args;
    CLEANUP(run_files_done) struct run_files files = {0};
    struct run_file code;
    json_t *runtime = NULL;
    int r = run_input_read(args->file, &code, err);
    if (r < 0)
        return r;
    if ((r = find_language(run, &code, &runtime, err)) < 0) {
        run_files_add(&files, "", code.content, code.size, false);
        files.items[0].mapped_size = code.mapped_size;
        return r;
    }
    const char *language = json_string_value(json_object_get(runtime, "name"));
    const char *main_file = json_string_value(json_object_get(runtime, "main_file"));
    const char *slash = strrchr(args->file, '/');
    const char *name = slash ? slash + 1 : args->file;
    if (main_file && (str_eq(name, "-") || str_eq(language, "native")))
        name = main_file;
    r = run_input_add(&files, name, &code, err);
    for (size_t i = 0; r == 0 && i < args->files.count; i++)
        r = run_input_add_extra(&files, args->files.items[i], err);
    if (r == 0 && args->install)
        r = run_input_add_packages(&files, args->file, language ? language : "", err);
    bool is_base64 = !args->json || args->base64;
    json_t *body = json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:s}", "language",
        language ? language : "", "entry", args->entry ? args->entry : name, "args",
        strings_json(&args->args, err), "env", env_json(&args->env), "compile_args",
        strings_json(&args->compile_args, err), "collect", strings_json(&args->collect, err),
        "output_encoding", is_base64 ? "base64" : "utf8");
    json_decref(runtime);
    if (r == 0 && (!body || err->code))
        r = err->code ? -EINVAL
                      : err_set(err, ERR_INVALID, EINVAL,
                            "the name of the program or --entry is not valid UTF-8");
    json_t *limits = limit_options_json(&args->limits);
    if (r == 0 && limits)
        (void)json_object_set(body, "limits", limits);
    json_decref(limits);
    if (r == 0 && args->image)
        (void)json_object_set_new(body, "image", json_string(args->image));
    if (r == 0 && args->install)
        (void)json_object_set_new(body, "install", json_true());
    if (r == 0 && args->network)
        (void)json_object_set_new(body, "network", network_policy_json(args->network));
    if (r == 0 && args->secrets.count)
        (void)json_object_set_new(body, "secrets", strings_json(&args->secrets, err));
    if (r == 0)
        add_files(body, &files);
    if (r == 0)
        r = add_stdin(args, body, err);
    if (r < 0)
        json_decref(body);
    else
        *ret = body;
    return r;
}

static const char *text_of(const json_t *object, const char *field)
{
    const char *text = json_string_value(json_object_get(object, field));
    return text ? text : "";
}

static void take_stage(const json_t *from, struct stage_result *to)
{
    const json_t *exit_code = json_object_get(from, "exit_code");
    const char *signal = json_string_value(json_object_get(from, "signal"));
    to->status = RUN_INTERNAL_ERROR;
    for (unsigned i = 0; i < RUN_STATUS_COUNT; i++) {
        if (str_eq(run_status_name((enum run_status)i), text_of(from, "status")))
            to->status = (enum run_status)i;
    }
    to->exited = json_is_integer(exit_code);
    to->exit_code = (int)json_integer_value(exit_code);
    for (int i = 1; signal && i <= SIGNAL_MAX; i++) {
        if (str_eq(run_signal_name(i), signal))
            to->signal = i;
    }
    (void)snprintf(to->message, sizeof(to->message), "%s", text_of(from, "message"));
    append_decoded(&to->out, json_object_get(from, "stdout"));
    append_decoded(&to->err, json_object_get(from, "stderr"));
}

static void take_files(const json_t *list, struct run_files *to)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        struct buf content;
        size_t len;
        buf_init(&content, OUTPUT_MAX);
        append_decoded(&content, json_object_get(one, "content"));
        char *bytes = buf_take(&content, &len);
        run_files_add(to, text_of(one, "name"), bytes, len, false);
        if (json_object_get(one, "error"))
            to->items[to->count - 1].error = "the server could not read it";
    }
}

/* Turns the answer of the server into a result. Its files have names that the server checked;
 * run_output() checks them again when it writes. */
static void take_answer(struct remote_run *run, const json_t *answer)
{
    const json_t *compile = json_object_get(answer, "compile");
    take_stage(answer, &run->result.run);
    run->result.has_compile = json_is_object(compile);
    if (run->result.has_compile)
        take_stage(compile, &run->result.compile);
    take_files(json_object_get(answer, "files"), &run->result.files);
    run->has_result = true;
}

static void on_event(void *context, const char *name, const json_t *data)
{
    struct remote_run *run = context;
    progress_end();
    if (str_eq(name, "start")) {
        cleanup_free char *path = xasprintf("/v1/runs/%s", text_of(data, "id"));
        interrupt_begin(&run->interrupter, "DELETE", path);
    } else if (str_eq(name, "stdout") || str_eq(name, "stderr")) {
        struct buf bytes;
        buf_init(&bytes, OUTPUT_MAX);
        append_decoded(&bytes, json_object_get(data, "data"));
        int fd = str_eq(name, "stdout") ? STDOUT_FILENO : STDERR_FILENO;
        int r =
            run->output_error ? 0 : fs_write_all(fd, bytes.data ? bytes.data : "", bytes.len);
        if (r < 0)
            run->output_error = r;
        buf_done(&bytes);
    } else if (str_eq(name, "end")) {
        interrupt_end(&run->interrupter);
        take_answer(run, data);
    }
}

/* With --json: the answer as it is. */
static int run_json(struct remote_run *run, const json_t *body, struct err *err)
{
    json_t *answer = NULL;
    int r = client_call(&run->client, "POST", "/v1/runs", body, &answer, err);
    if (r < 0)
        return r;
    take_answer(run, answer);
    output_json(answer, JSON_REAL_PRECISION(12));
    return run_exit_status(&run->result, SIGINT);
}

static int run_streamed(struct remote_run *run, const json_t *body, struct err *err)
{
    int r = interrupt_start(&run->interrupter, &run->client, err);
    if (r < 0)
        return r;
    r = client_stream(&run->client, "/v1/runs", body, on_event, run, err);
    progress_end();
    interrupt_stop(&run->interrupter);
    if (r < 0)
        return r;
    if (run->output_error < 0)
        return output_fail(run_options.command, -run->output_error);
    return run_output(&run->result, run->args->out_dir, SIGINT);
}

int remote_run(const struct client *client, int argc, char **argv, struct err *err)
{
    struct run_args args = {0};
    run_options_parse(&args, argc, argv);
    struct remote_run run = {
        .args = &args, .client = *client, .interrupter = {.keeps_early = true}};
    run.client.is_default = false; /* the caller has named a server */
    run.client.unix_path = args.unix_path;
    if (args.url)
        run.client.url = args.url;
    run_result_init(&run.result, OUTPUT_MAX);
    json_t *body = NULL;
    int r = make_body(&run, &body, err);
    if (r == 0) {
        progress_begin("running %s on the server", args.file);
        r = args.json ? run_json(&run, body, err) : run_streamed(&run, body, err);
        progress_end();
    }
    json_decref(body);
    run_result_done(&run.result);
    run_args_done(&args);
    return r;
}
