/* SPDX-License-Identifier: Apache-2.0 */

/* See command.h. Each command calls one or two routes of the server and prints the answer. */

#include "cli/session/command.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli/input.h"
#include "cli/session/files.h"
#include "cli/session/own_command.h"
#include "cli/session/packages.h"
#include "cli/session/repl.h"
#include "cli/session/show.h"
#include "cli/session/terminal.h"
#include "network/policy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SESSIONS "/v1/sessions"

enum { TEXT_MAX = 16 << 20 }; /* bytes of code and stdin, the server's limit */

json_t *session_text_json(const char *what, const char *text)
{
    json_t *json = json_string(text);
    if (!json)
        options_misuse(SESSION_COMMAND, "%s is not valid UTF-8", what);
    return json;
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
        return err_set(err, ERR_INVALID, EINVAL, "%s is not valid UTF-8", field);
    (void)json_object_set_new(args->exec, field, text);
    return r;
}

/* Reads the code, and stdin if there is any. */
static int read_code(const struct args *args, struct err *err)
{
    int r = 0;
    if (args->code && args->count > 1)
        return err_set(err, ERR_INVALID, EINVAL, "use either -e CODE or a file, not both");
    if (args->code)
        (void)json_object_set_new(args->exec, "code", session_text_json("--code", args->code));
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

/* A prompt in a session that exists. */
static int join(const struct args *args, struct err *err)
{
    json_t *session = NULL;
    cleanup_free char *path = client_path(args->words[0], "", err);
    int r = path ? client_call(&args->client, "GET", path, NULL, &session, err) : -EINVAL;
    if (r == 0)
        r = repl_run(&args->client, session, args->exec, false, NULL, err);
    json_decref(session);
    return r;
}

/* A command with a session of its own, on a server that may be its own, too. */
struct prompt {
    const struct args *args;
    struct own_command own;
};

/* A prompt in a new session. */
static int converse(void *context, struct consent *consent, struct err *err)
{
    const struct prompt *p = context;
    const struct client *client = &p->own.client;
    json_t *session = NULL, *answer = NULL;
    int r = client_call(client, "POST", SESSIONS, p->args->session, &session, err);
    if (r < 0)
        return r;
    r = repl_run(client, session, p->args->exec, !p->args->keep, consent, err);
    const char *id = json_string_value(json_object_get(session, "id"));
    struct err ignored = {0};
    cleanup_free char *path = id && !p->args->keep ? client_path(id, "", &ignored) : NULL;
    if (path)
        (void)client_call(client, "DELETE", path, NULL, &answer, &ignored);
    json_decref(answer);
    json_decref(session);
    return r;
}

static int command_repl(const struct args *args, struct err *err)
{
    const struct own_wish wish = {
        .backend = json_string_value(json_object_get(args->session, "backend")),
        .language = json_string_value(json_object_get(args->session, "language"))};
    struct prompt p = {.args = args,
        .own = {.name = SESSION_COMMAND " repl",
            .wish = wish,
            .is_wanted = args->wants_own,
            .is_given = args->is_given,
            .rules = args->rules,
            .refusal = args->keep ? "--keep needs a server that stays: `hermes serve`" : NULL,
            .client = args->client,
            .session = args->session,
            .run = converse}};
    p.own.context = &p;
    if (args->count == 0)
        return own_command_run(&p.own, err);
    if (args->wants_own || args->is_given || args->rules)
        return err_set(err, ERR_INVALID, EINVAL,
            "--own-server, --yes and --rules are for a new session; leave out the ID");
    return join(args, err);
}

static int command_interrupt(const struct args *args, struct err *err)
{
    return call(args, "POST", client_path(args->words[0], "/interrupt", err), NULL, NULL, err);
}

static int command_reset(const struct args *args, struct err *err)
{
    return call(args, "POST", client_path(args->words[0], "/reset", err), NULL, NULL, err);
}

static int command_network(const struct args *args, struct err *err)
{
    cleanup_free struct network_policy *policy = NULL;
    int r = network_policy_parse(args->words[1], &policy, err);
    if (r < 0)
        return r;
    json_t *body = json_pack("{s:o}", "network", network_policy_json(policy));
    return call(args, "PATCH", client_path(args->words[0], "", err), body, NULL, err);
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
        (void)json_object_set_new(body, "name", session_text_json("NAME", args->words[1]));
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
        json_pack("{s:o}", "checkpoint", session_text_json("NAME", args->words[1])), NULL, err);
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
        return err_field(err, "--kill",
            "`%.64s` is not the number of a job; `hermes session jobs ID` lists them", job);
    cleanup_free char *below = job ? xasprintf("/jobs/%s", job) : xstrdup("/jobs");
    return call(args, job ? "DELETE" : "GET", client_path(args->words[0], below, err), NULL,
        show_jobs, err);
}

static int command_pip(const struct args *args, struct err *err)
{
    return packages_install(args, "pip", err);
}

static int command_npm(const struct args *args, struct err *err)
{
    return packages_install(args, "npm", err);
}

static int command_commit(const struct args *args, struct err *err)
{
    return call(args, "POST", client_path(args->words[0], "/commit", err),
        json_pack("{s:o}", "name", session_text_json("NAME", args->words[1])), NULL, err);
}

const struct session_command session_commands[] = {
    {"new", NULL, NULL, 0, 0, command_new,
        "language name env idle lifetime image backend limits-mode network secret limits",
        "make a session and print its id"},
    {"ls", NULL, NULL, 0, 0, command_list, "", "list your sessions"},
    {"exec", NULL, "ID [FILE|-]", 1, 2, command_exec, "code timeout stdin",
        "run code from a file, -e or stdin"},
    {"repl", NULL, "[ID]", 0, 1, command_repl,
        "language name env idle lifetime image backend limits-mode network secret timeout keep "
        "own-server yes rules limits",
        "type code at a prompt; without ID: a new session, also without a server"},
    {"terminal", NULL, "ID", 1, 1, command_terminal, "",
        "a shell in the box, on this terminal; Ctrl-] leaves"},
    {"interrupt", NULL, "ID", 1, 1, command_interrupt, "",
        "interrupt the code that a session runs"},
    {"reset", NULL, "ID", 1, 1, command_reset, "", "start a new interpreter; the files stay"},
    {"network", NULL, "ID POLICY", 2, 2, command_network, "",
        "change what a session may reach: none, full, allow=HOST,... or ask=HOST,..."},
    {"pip install", NULL, "ID PACKAGE...", 2, SESSION_WORDS_MAX, command_pip, "",
        "install Python packages in a live session"},
    {"npm install", NULL, "ID PACKAGE...", 2, SESSION_WORDS_MAX, command_npm, "",
        "install JavaScript packages in a live session"},
    {"commit", NULL, "ID NAME", 2, 2, command_commit, "",
        "make an image of a session's packages"},
    {"jobs", NULL, "ID", 1, 1, command_jobs, "kill",
        "list the background jobs of a shell session"},
    {"files ls", "ls-files", "ID [DIR]", 1, 2, command_list_files, "recursive",
        "list files; DIR is below /box"},
    {"files get", "get", "ID PATH [FILE|-]", 2, 3, command_get, "",
        "fetch a file; DIR/ comes as a .tar or .zip"},
    {"files put", "put", "ID FILE|- [PATH]", 2, 3, command_put, "",
        "send a file; PATH is below /box"},
    {"files rm", "rm-file", "ID PATH", 2, 2, command_remove_file, "recursive",
        "delete a file or directory"},
    {"checkpoint new", "checkpoint", "ID [NAME]", 1, 2, command_checkpoint, "",
        "keep the present state; prints its name"},
    {"checkpoint ls", "checkpoints", "ID", 1, 1, command_checkpoints, "",
        "list the checkpoints of a session"},
    {"checkpoint rm", "rm-checkpoint", "ID NAME", 2, 2, command_remove_checkpoint, "",
        "delete a checkpoint"},
    {"rollback", NULL, "ID NAME", 2, 2, command_rollback, "",
        "continue a session from a checkpoint"},
    {"fork", NULL, "ID", 1, 1, command_fork, "count",
        "copy memory and files; prints the ids of the copies"},
    {"rm", NULL, "ID...", 1, SESSION_WORDS_MAX, command_remove, "", "end sessions"},
};
const size_t session_command_count = sizeof(session_commands) / sizeof(session_commands[0]);
