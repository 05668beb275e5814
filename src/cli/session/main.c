/* SPDX-License-Identifier: Apache-2.0 */

/* hermes-session: `hermes session` executes it. Sessions of a server from the command line. It
 * is a separate program because libcurl and libedit would make the start of `hermes run` ten
 * times slower. */

#include "cli/input.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session/client.h"
#include "cli/session/files.h"
#include "cli/session/repl.h"
#include "cli/session/show.h"
#include "cli/session/terminal.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND "hermes session"
#define SESSIONS "/v1/sessions"

enum { TEXT_MAX = 16 << 20 }; /* bytes of code and stdin, the server's limit */

enum {
    OPT_URL = 256,
    OPT_UNIX,
    OPT_NAME,
    OPT_MEMORY,
    OPT_IDLE,
    OPT_LIFETIME,
    OPT_STDIN,
    OPT_JSON,
    OPT_KILL,
    OPT_KEEP,
    OPT_COUNT,
    OPT_RECURSIVE = 'r',
};

struct args {
    struct client client;
    bool json;
    const char *code;
    const char *stdin_path;
    const char *kill_job;
    const char *words[64];
    int count;
    json_t *session; /* body of POST /v1/sessions */
    json_t *exec;    /* body of POST /v1/sessions/ID/exec */
    bool keep;
    bool recursive;
    uint64_t copies;
};

static int command_new(const struct args *args, struct err *err);
static int command_list(const struct args *args, struct err *err);
static int command_exec(const struct args *args, struct err *err);
static int command_repl(const struct args *args, struct err *err);
static int command_interrupt(const struct args *args, struct err *err);
static int command_reset(const struct args *args, struct err *err);
static int command_jobs(const struct args *args, struct err *err);
static int command_put(const struct args *args, struct err *err);
static int command_get(const struct args *args, struct err *err);
static int command_list_files(const struct args *args, struct err *err);
static int command_remove_file(const struct args *args, struct err *err);
static int command_remove(const struct args *args, struct err *err);
static int command_terminal(const struct args *args, struct err *err);
static int command_fork(const struct args *args, struct err *err);
static int command_checkpoint(const struct args *args, struct err *err);
static int command_checkpoints(const struct args *args, struct err *err);
static int command_rollback(const struct args *args, struct err *err);
static int command_remove_checkpoint(const struct args *args, struct err *err);

static const struct {
    const char *name;
    int least, most; /* number of arguments */
    int (*run)(const struct args *args, struct err *err);
    const char *text;
} commands[] = {
    {"new", 0, 0, command_new, "make a session and print its id"},
    {"ls", 0, 0, command_list, "list your sessions"},
    {"exec", 1, 2, command_exec, "ID [FILE|-]: run code in it"},
    {"repl", 0, 1, command_repl, "[ID]: talk to it; without an ID to a new one"},
    {"terminal", 1, 1, command_terminal,
        "ID: a shell in its box, on this terminal; Ctrl-] leaves"},
    {"interrupt", 1, 1, command_interrupt, "ID: interrupt what it runs"},
    {"reset", 1, 1, command_reset, "ID: a new interpreter, the same files"},
    {"jobs", 1, 1, command_jobs, "ID: background jobs of a shell"},
    {"put", 2, 3, command_put, "ID FILE|- [PATH]: send a file; PATH is below /box"},
    {"get", 2, 3, command_get,
        "ID PATH [FILE|-]: fetch one; DIR/ comes as FILE.tar or FILE.zip"},
    {"ls-files", 1, 2, command_list_files, "ID [DIR]: what lies in it"},
    {"rm-file", 2, 2, command_remove_file, "ID PATH: delete a file or directory"},
    {"fork", 1, 1, command_fork, "ID: copies of it, memory and files; prints their ids"},
    {"checkpoint", 1, 2, command_checkpoint, "ID [NAME]: keep its present state; prints NAME"},
    {"checkpoints", 1, 1, command_checkpoints, "ID: its kept states"},
    {"rollback", 2, 2, command_rollback, "ID NAME: go on from one"},
    {"rm-checkpoint", 2, 2, command_remove_checkpoint, "ID NAME: give one up"},
    {"rm", 1, 64, command_remove, "ID...: end sessions"},
};

static const struct option_row options[] = {
    {"url", OPT_URL, "URL", "server, http://127.0.0.1:8000 ($HERMES_URL)"},
    {"unix", OPT_UNIX, "PATH", "unix socket of the server ($HERMES_UNIX)"},
    {"json", OPT_JSON, NULL, "print the server's answer"},
    {"language", 'l', "LANG", "new, repl: python (default), javascript or bash"},
    {"name", OPT_NAME, "NAME", "new, repl: a name to know it by"},
    {"memory", OPT_MEMORY, "SIZE", "new, repl: memory of its box, 512m"},
    {"env", 'E', "KEY=VALUE", "new, repl: a variable of its environment"},
    {"idle", OPT_IDLE, "TIME", "new, repl: how long it may be idle, 30m"},
    {"lifetime", OPT_LIFETIME, "TIME", "new, repl: how long it may live"},
    {"code", 'e', "CODE", "exec: the code itself"},
    {"timeout", 't', "TIME", "exec, repl: time for one piece of code, 30s"},
    {"stdin", OPT_STDIN, "FILE", "exec: what the code reads as stdin"},
    {"kill", OPT_KILL, "JOB", "jobs: end this one"},
    {"keep", OPT_KEEP, NULL, "repl: keep a session that it made"},
    {"count", OPT_COUNT, "N", "fork: so many copies, 1"},
    {"recursive", OPT_RECURSIVE, NULL, "ls-files, rm-file: what lies below, too"},
    {0},
};

/* Converts command-line text to JSON. The server accepts UTF-8 only. */
static json_t *text_json(const char *what, const char *text)
{
    json_t *json = json_string(text);
    if (!json)
        options_misuse(COMMAND, "%s is no UTF-8", what);
    return json;
}

static void set_number(json_t *to, const char *field, uint64_t value, const char *arg)
{
    if (value == 0)
        options_misuse(COMMAND, "`%s` is not allowed here", arg);
    (void)json_object_set_new(to, field, json_integer((json_int_t)value));
}

static uint64_t parse_ms(const char *arg)
{
    uint64_t ms = 0;
    if (str_parse_duration_ms(arg, &ms) < 0)
        options_misuse(COMMAND, "`%s` is no time; write 500ms, 30s, 5m or 2h", arg);
    return ms;
}

static uint64_t parse_mb(const char *arg)
{
    uint64_t bytes = 0;
    if (str_parse_size(arg, &bytes) < 0)
        options_misuse(COMMAND, "`%s` is no size; write 256m or 1g", arg);
    return (bytes >> 20) + (bytes % (1 << 20) != 0); /* rounded up, as in `hermes run` */
}

static void add_env(struct args *args, const char *arg)
{
    const char *equals = strchr(arg, '=');
    json_t *env = json_object_get(args->session, "env");
    if (!equals)
        options_misuse(COMMAND, "`%s` is no KEY=VALUE", arg);
    if (!env) {
        env = json_object();
        (void)json_object_set_new(args->session, "env", env);
    }
    json_decref(text_json("--env", arg)); /* checks the variable's name too */
    cleanup_free char *key = xstrndup(arg, (size_t)(equals - arg));
    (void)json_object_set_new(env, key, json_string(equals + 1));
}

static void take_option(void *to, int key, char *arg)
{
    struct args *args = to;
    switch (key) {
    case OPT_URL:
        args->client.url = arg;
        args->client.unix_path = NULL;
        break;
    case OPT_UNIX:
        args->client.unix_path = arg;
        break;
    case OPT_JSON:
        args->json = true;
        break;
    case 'l':
        (void)json_object_set_new(args->session, "language", text_json("--language", arg));
        break;
    case OPT_NAME:
        (void)json_object_set_new(args->session, "name", text_json("--name", arg));
        break;
    case OPT_MEMORY: {
        json_t *limits = json_object();
        set_number(limits, "memory_mb", parse_mb(arg), arg);
        (void)json_object_set_new(args->session, "limits", limits);
        break;
    }
    case 'E':
        add_env(args, arg);
        break;
    case OPT_IDLE:
        set_number(args->session, "idle_timeout_s", parse_ms(arg) / 1000, arg);
        break;
    case OPT_LIFETIME:
        set_number(args->session, "max_lifetime_s", parse_ms(arg) / 1000, arg);
        break;
    case 't':
        set_number(args->exec, "timeout_ms", parse_ms(arg), arg);
        break;
    case 'e':
        args->code = arg;
        break;
    case OPT_STDIN:
        args->stdin_path = arg;
        break;
    case OPT_KILL:
        args->kill_job = arg;
        break;
    case OPT_KEEP:
        args->keep = true;
        break;
    case OPT_COUNT:
        if (str_parse_u64(arg, &args->copies) < 0 || args->copies == 0)
            options_misuse(COMMAND, "`%s` is no number of copies", arg);
        break;
    case OPT_RECURSIVE:
        args->recursive = true;
        break;
    case OPTION_NONE:
        if (args->count == sizeof(args->words) / sizeof(args->words[0]))
            options_misuse(COMMAND, "there are too many arguments");
        args->words[args->count++] = arg;
        break;
    default:
        break;
    }
}

/* The list of commands, for --help. */
static char *list_commands(void)
{
    struct buf out;
    buf_init(&out, TEXT_MAX);
    (void)buf_append_str(&out, "Live interpreters and shells of a server.\n\n");
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        (void)buf_printf(&out, "  %-13s %s\n", commands[i].name, commands[i].text);
    (void)buf_append_str(
        &out, "\nThe key of a server that has any comes from $HERMES_API_KEY.");
    return buf_take(&out, NULL);
}

/* Calls a route. Prints the answer as JSON or with `show`, or not at all. Takes body and path;
 * path may be NULL with err set. */
static int call(const struct args *args, const char *method, char *path, json_t *body,
    void (*show)(const json_t *answer), struct err *err)
{
    json_t *answer = NULL;
    int r = path ? client_call(&args->client, method, path, body, &answer, err) : -EINVAL;
    if (r == 0 && args->json && answer)
        show_json(answer);
    else if (r == 0 && !args->json && show)
        show(answer);
    json_decref(answer);
    json_decref(body);
    free(path);
    return r;
}

static int command_new(const struct args *args, struct err *err)
{
    return call(args, "POST", xstrdup(SESSIONS), json_incref(args->session), show_id, err);
}

static int command_list(const struct args *args, struct err *err)
{
    return call(args, "GET", xstrdup(SESSIONS), NULL, show_sessions, err);
}

static int add_text(
    const struct args *args, const char *field, const char *path, struct err *err)
{
    cleanup_buf struct buf content = {0};
    int r = input_read(path, TEXT_MAX, &content, err);
    json_t *text = r < 0 ? NULL : json_stringn(content.data ? content.data : "", content.len);
    if (r == 0 && !text)
        return err_set(err, ERR_INVALID, EINVAL, "%s is no UTF-8", field);
    (void)json_object_set_new(args->exec, field, text);
    return r;
}

/* Reads the code, and stdin if there is any. */
static int read_code(const struct args *args, struct err *err)
{
    int r = 0;
    if (args->code && args->count > 1)
        return err_set(err, ERR_INVALID, EINVAL, "give either -e CODE or a file");
    if (args->code)
        (void)json_object_set_new(args->exec, "code", text_json("--code", args->code));
    else
        r = add_text(args, "code", args->count > 1 ? args->words[1] : "-", err);
    return r < 0 || !args->stdin_path ? r : add_text(args, "stdin", args->stdin_path, err);
}

static int command_exec(const struct args *args, struct err *err)
{
    cleanup_free char *path = client_path(args->words[0], "/exec", err);
    json_t *answer = NULL;
    struct show show = {0};
    int r = path ? read_code(args, err) : -EINVAL;
    if (r == 0 && args->json) {
        r = client_call(&args->client, "POST", path, args->exec, &answer, err);
        if (r == 0)
            show_json(answer);
        show.exit_status = show_exit_status(answer);
        json_decref(answer);
    } else if (r == 0) {
        r = repl_exec(&args->client, args->words[0], args->exec, &show, err);
    }
    return r < 0 ? r : show.exit_status;
}

static int command_repl(const struct args *args, struct err *err)
{
    json_t *session = NULL;
    bool is_own = args->count == 0;
    cleanup_free char *path = is_own ? xstrdup(SESSIONS) : client_path(args->words[0], "", err);
    int r = path ? client_call(&args->client, is_own ? "POST" : "GET", path,
                       is_own ? args->session : NULL, &session, err)
                 : -EINVAL;
    if (r == 0)
        r = repl_run(&args->client, session, args->exec, err);
    if (session && is_own && !args->keep) {
        const char *id = json_string_value(json_object_get(session, "id"));
        struct err ignored = {0};
        (void)call(args, "DELETE", client_path(id, "", &ignored), NULL, NULL, &ignored);
    }
    json_decref(session);
    return r;
}

static int command_interrupt(const struct args *args, struct err *err)
{
    return call(args, "POST", client_path(args->words[0], "/interrupt", err), NULL, NULL, err);
}

static int command_reset(const struct args *args, struct err *err)
{
    return call(args, "POST", client_path(args->words[0], "/reset", err), NULL, NULL, err);
}

static int command_remove(const struct args *args, struct err *err)
{
    int r = 0;
    for (int i = 0; r == 0 && i < args->count; i++)
        r = call(args, "DELETE", client_path(args->words[i], "", err), NULL, NULL, err);
    return r;
}

static int command_put(const struct args *args, struct err *err)
{
    return files_put(&args->client, args->words[0], args->words[1],
        args->count > 2 ? args->words[2] : NULL, err);
}

static int command_get(const struct args *args, struct err *err)
{
    return files_get(&args->client, args->words[0], args->words[1],
        args->count > 2 ? args->words[2] : NULL, err);
}

static int command_list_files(const struct args *args, struct err *err)
{
    json_t *answer = NULL;
    int r = files_list(&args->client, args->words[0], args->count > 1 ? args->words[1] : "",
        args->recursive, &answer, err);
    if (r == 0 && args->json)
        show_json(answer);
    else if (r == 0)
        show_files(answer);
    json_decref(answer);
    return r;
}

static int command_remove_file(const struct args *args, struct err *err)
{
    return files_remove(&args->client, args->words[0], args->words[1], args->recursive, err);
}

static int command_terminal(const struct args *args, struct err *err)
{
    return terminal_run(&args->client, args->words[0], err);
}

static int command_fork(const struct args *args, struct err *err)
{
    json_int_t count = args->copies ? (json_int_t)args->copies : 1;
    return call(args, "POST", client_path(args->words[0], "/fork", err),
        json_pack("{s:I}", "count", count), show_copies, err);
}

static int command_checkpoint(const struct args *args, struct err *err)
{
    json_t *body = json_object();
    if (args->count > 1)
        (void)json_object_set_new(body, "name", text_json("NAME", args->words[1]));
    return call(args, "POST", client_path(args->words[0], "/checkpoints", err), body,
        show_checkpoint, err);
}

static int command_checkpoints(const struct args *args, struct err *err)
{
    return call(args, "GET", client_path(args->words[0], "/checkpoints", err), NULL,
        show_checkpoints, err);
}

static int command_rollback(const struct args *args, struct err *err)
{
    return call(args, "POST", client_path(args->words[0], "/rollback", err),
        json_pack("{s:o}", "checkpoint", text_json("NAME", args->words[1])), NULL, err);
}

static int command_remove_checkpoint(const struct args *args, struct err *err)
{
    cleanup_free char *name = client_escape(args->words[1]);
    cleanup_free char *below = xasprintf("/checkpoints/%s", name);
    return call(args, "DELETE", client_path(args->words[0], below, err), NULL, NULL, err);
}

static int command_jobs(const struct args *args, struct err *err)
{
    const char *job = args->kill_job;
    if (job && strspn(job, "0123456789") != strlen(job))
        return err_field(err, "--kill", "`%.64s` is no job", job);
    cleanup_free char *below = job ? xasprintf("/jobs/%s", job) : xstrdup("/jobs");
    return call(args, job ? "DELETE" : "GET", client_path(args->words[0], below, err), NULL,
        show_jobs, err);
}

static int run_command(int argc, char **argv, struct args *args, struct err *err)
{
    cleanup_free char *text = list_commands();
    const struct option_table table = {.command = COMMAND,
        .operands = "COMMAND [ARGUMENT...]",
        .before = text,
        .rows = options};
    options_parse(&table, argc, argv, take_option, args);
    const char *name = args->count ? args->words[0] : "";
    args->count -= args->count > 0;
    memmove(args->words, args->words + 1, sizeof(args->words[0]) * (size_t)args->count);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (!str_eq(commands[i].name, name))
            continue;
        if (args->count < commands[i].least || args->count > commands[i].most)
            return err_set(err, ERR_INVALID, EINVAL, "usage: hermes session %s %s", name,
                commands[i].text);
        return commands[i].run(args, err);
    }
    return err_set(err, ERR_INVALID, EINVAL,
        name[0] ? "unknown command `%.64s`; `hermes session --help` lists them"
                : "a command is missing%s; `hermes session --help` lists them",
        name);
}

static const char *from_env(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

int main(int argc, char **argv)
{
    struct args args = {.session = json_object(), .exec = json_object()};
    struct err err = {0};
    const char *url = from_env("HERMES_URL");
    args.client.url = url ? url : "http://127.0.0.1:8000";
    args.client.unix_path = url ? NULL : from_env("HERMES_UNIX");
    args.client.key = from_env("HERMES_API_KEY");
    (void)json_object_set_new(args.session, "language", json_string("python"));
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
    int r = run_command(argc, argv, &args, &err);
    json_decref(args.session);
    json_decref(args.exec);
    curl_global_cleanup();
    if (r >= 0)
        return output_end(COMMAND, r);
    (void)fprintf(
        stderr, "hermes session: %s%s%s\n", err.field, err.field[0] ? ": " : "", err.message);
    return err_table[err.code].exit_status;
}
