/* SPDX-License-Identifier: Apache-2.0 */

/* hermes-session: `hermes session` executes it. Sessions of a server from the command line, and
 * `hermes run --url`. It is a separate program because libcurl and libedit would make the start
 * of `hermes run` ten times slower. */

#include "cli/cli.h"
#include "cli/complete.h"
#include "cli/limit_options.h"
#include "cli/output.h"
#include "cli/session/approvals.h"
#include "cli/session/backends.h"
#include "cli/session/command.h"
#include "cli/session/mcp.h"
#include "cli/session/remote_run.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/nearest.h"
#include "base/str.h"
#include "network/policy.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPT_URL = 256,
    OPT_UNIX,
    OPT_NAME,
    OPT_IDLE,
    OPT_LIFETIME,
    OPT_STDIN,
    OPT_JSON,
    OPT_KILL,
    OPT_KEEP,
    OPT_COUNT,
    OPT_NETWORK,
    OPT_SECRET,
    OPT_IMAGE,
    OPT_BACKEND,
    OPT_LIMITS_MODE,
    OPT_OWN,
    OPT_YES,
    OPT_RULES,
};
enum { GLOBAL_COUNT = 3, HELP_MAX = 1 << 16, NAME_LEN = 64 };

/* The first GLOBAL_COUNT options belong to every command. */
static const struct option_row all_rows[] = {
    {"url", OPT_URL, "URL", "the server (default: $HERMES_URL, else http://127.0.0.1:8000)"},
    {"unix", OPT_UNIX, "PATH", "unix socket of the server (default: $HERMES_UNIX)"},
    {"json", OPT_JSON, NULL, "print the server's answer, or the error, as JSON"},
    {"language", 'l', "LANG", "python (default), javascript or bash"},
    {"name", OPT_NAME, "NAME", "a name for the session, shown in `hermes session ls`"},
    {"env", 'E', "KEY=VALUE", "set a variable in the session; may be repeated"},
    {"idle", OPT_IDLE, "TIME", "end the session after this idle time (default: 30m)"},
    {"lifetime", OPT_LIFETIME, "TIME",
        "end the session after this time in any case (default: 24h)"},
    {"image", OPT_IMAGE, "NAME", "the session has the packages of an image of the server"},
    {"backend", OPT_BACKEND, "NAME",
        "where a bash session runs: a name of `hermes backends` (default: native, a box)"},
    {"limits-mode", OPT_LIMITS_MODE, "MODE",
        "limits that the backend cannot enforce: strict (default) refuses them, best_effort "
        "goes on without them"},
    {CLI_NETWORK(OPT_NETWORK)},
    {CLI_SECRET(OPT_SECRET)},
    {"code", 'e', "CODE", "the code itself, instead of a file"},
    {"timeout", 't', "TIME", "time for one piece of code (default: 30s)"},
    {"stdin", OPT_STDIN, "FILE", "standard input of the code"},
    {"kill", OPT_KILL, "JOB", "end this job"},
    {"keep", OPT_KEEP, NULL, "keep the new session when the prompt ends"},
    {"own-server", OPT_OWN, NULL,
        "start a server for this prompt alone, also when another one runs; the session runs "
        "where --backend, $TERMINAL_ENV or ~/.hermes/config.yaml says"},
    {"yes", OPT_YES, NULL,
        "without a server: you allow commands outside of a box, and are not asked"},
    {"rules", OPT_RULES, "FILE", "without a server: rules of approvals, as JSON"},
    {"count", OPT_COUNT, "N", "number of copies (default: 1)"},
    {"recursive", 'r', NULL, "also the files in directories"},
};

static const char exit_text[] = "If the server needs a key, set HERMES_API_KEY.\n\n"
                                "Exit status: 0; for `exec` and `terminal` that of the code: 1 "
                                "after an exception, 124 time "
                                "limit, 137 memory limit or killed, 153 output limit; 2 wrong "
                                "usage or refused by the server; "
                                "125 when the server cannot be reached or failed.";

static void add_secret(struct args *args, const char *name)
{
    json_t *list = json_object_get(args->session, "secrets");
    if (!list) {
        list = json_array();
        (void)json_object_set_new(args->session, "secrets", list);
    }
    (void)json_array_append_new(list, session_text_json("--secret", name));
}

static void set_number(
    json_t *to, const char *field, uint64_t value, const char *option, const char *arg)
{
    if (value == 0)
        options_wrong(SESSION_COMMAND, option, arg, "it must be above zero");
    (void)json_object_set_new(to, field, json_integer((json_int_t)value));
}

static uint64_t parse_ms(const char *option, const char *arg)
{
    uint64_t ms = 0;
    if (str_parse_duration_ms(arg, &ms) < 0)
        options_wrong(
            SESSION_COMMAND, option, arg, "not a duration such as 500ms, 30s, 5m or 2h");
    return ms;
}

static void add_env(struct args *args, const char *arg)
{
    const char *equals = strchr(arg, '=');
    json_t *env = json_object_get(args->session, "env");
    if (!equals)
        options_wrong(SESSION_COMMAND, "env", arg, "not KEY=VALUE");
    if (!env) {
        env = json_object();
        (void)json_object_set_new(args->session, "env", env);
    }
    json_decref(session_text_json("--env", arg)); /* checks the variable's name too */
    cleanup_free char *key = xstrndup(arg, (size_t)(equals - arg));
    (void)json_object_set_new(env, key, json_string(equals + 1));
}

static const struct option_member members[] = {
    {OPT_JSON, OPTION_FLAG, offsetof(struct args, json)},
    {'e', OPTION_TEXT, offsetof(struct args, code)},
    {OPT_STDIN, OPTION_TEXT, offsetof(struct args, stdin_path)},
    {OPT_KILL, OPTION_TEXT, offsetof(struct args, kill_job)},
    {OPT_KEEP, OPTION_FLAG, offsetof(struct args, keep)},
    {OPT_OWN, OPTION_FLAG, offsetof(struct args, wants_own)},
    {OPT_YES, OPTION_FLAG, offsetof(struct args, is_given)},
    {OPT_RULES, OPTION_TEXT, offsetof(struct args, rules)},
    {'r', OPTION_FLAG, offsetof(struct args, recursive)},
};

/* Options that are a field of a request. Whether the key is one. */
static bool take_field(struct args *args, int key, const char *arg)
{
    const struct {
        int key;
        json_t *to;
        const char *field;
        const char *option;
        uint64_t ms_per_unit; /* 0: a text */
    } fields[] = {{'l', args->session, "language", "--language", 0},
        {OPT_NAME, args->session, "name", "--name", 0},
        {OPT_IMAGE, args->session, "image", "--image", 0},
        {OPT_BACKEND, args->session, "backend", "--backend", 0},
        {OPT_LIMITS_MODE, args->session, "limits_mode", "--limits-mode", 0},
        {OPT_IDLE, args->session, "idle_timeout_s", "--idle", 1000},
        {OPT_LIFETIME, args->session, "max_lifetime_s", "--lifetime", 1000},
        {'t', args->exec, "timeout_ms", "--timeout", 1}};
    size_t i = 0;
    while (i < sizeof(fields) / sizeof(fields[0]) && fields[i].key != key)
        i++;
    if (i == sizeof(fields) / sizeof(fields[0]))
        return false;
    const char *name = fields[i].option + 2;
    if (fields[i].ms_per_unit)
        set_number(fields[i].to, fields[i].field, parse_ms(name, arg) / fields[i].ms_per_unit,
            name, arg);
    else
        (void)json_object_set_new(
            fields[i].to, fields[i].field, session_text_json(fields[i].option, arg));
    return true;
}

static void take_network(struct args *args, const char *arg)
{
    cleanup_free struct network_policy *policy = NULL;
    cli_network(SESSION_COMMAND, arg, &policy);
    (void)json_object_set_new(args->session, "network", network_policy_json(policy));
}

static void take_option(void *to, int key, char *arg)
{
    struct args *args = to;
    if (limit_options_take(SESSION_COMMAND, key, arg, &args->limits) ||
        options_store(members, sizeof(members) / sizeof(members[0]), args, key, arg) ||
        take_field(args, key, arg))
        return;
    switch (key) {
    case OPT_URL:
        args->client.url = arg;
        args->client.unix_path = NULL;
        args->client.is_default = false;
        break;
    case OPT_UNIX:
        args->client.unix_path = arg;
        args->client.is_default = false;
        break;
    case 'E':
        add_env(args, arg);
        break;
    case OPT_NETWORK:
        take_network(args, arg);
        break;
    case OPT_SECRET:
        add_secret(args, arg);
        break;
    case OPT_COUNT:
        if (str_parse_u64(arg, &args->copies) < 0 || args->copies == 0)
            options_wrong(SESSION_COMMAND, "count", arg, "not a number above zero");
        break;
    case OPTION_NONE:
        if (args->count == SESSION_WORDS_MAX)
            options_misuse(SESSION_COMMAND, "too many arguments");
        args->words[args->count++] = arg;
        break;
    default:
        break;
    }
}

/* Whether `name` is one of the words in `list`. */
static bool has_word(const char *list, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at += len) {
        if ((at == list || at[-1] == ' ') && (at[len] == ' ' || !at[len]))
            return true;
    }
    return false;
}

/* The option table of one command. Its rows live until the next call. */
static struct option_table command_table(const struct session_command *command)
{
    static struct option_row rows[sizeof(all_rows) / sizeof(all_rows[0]) + 1];
    static char title[NAME_LEN];
    size_t count = 0;
    for (size_t i = 0; i < sizeof(all_rows) / sizeof(all_rows[0]); i++) {
        if (i < GLOBAL_COUNT || has_word(command->options, all_rows[i].name))
            rows[count++] = all_rows[i];
    }
    rows[count] = (struct option_row){0};
    (void)snprintf(title, sizeof(title), SESSION_COMMAND " %s", command->name);
    return (struct option_table){.command = title,
        .operands = command->operands,
        .summary = command->text,
        .before = command->text,
        .after = exit_text,
        .rows = rows,
        .more = has_word(command->options, "limits") ? limit_options : NULL};
}

/* The list of the commands whose names begin with `group`, for --help. */
static char *list_commands(const char *group)
{
    struct buf out;
    buf_init(&out, HELP_MAX);
    (void)buf_append_str(&out, "Live interpreters and shells on a server.\n\n");
    for (size_t i = 0; i < session_command_count; i++) {
        const struct session_command *command = &session_commands[i];
        cleanup_free char *usage = xasprintf("%s%s%s", command->name,
            command->operands ? " " : "", command->operands ? command->operands : "");
        if (str_has_prefix(command->name, group))
            (void)buf_printf(&out, "  %-26s %s\n", usage, command->text);
    }
    (void)buf_append_str(
        &out, "\nRun `hermes session COMMAND --help` for the options of a command.");
    return buf_take(&out, NULL);
}

static struct option_table main_table(const char *text)
{
    static struct option_row rows[GLOBAL_COUNT + 1];
    memcpy(rows, all_rows, sizeof(*rows) * GLOBAL_COUNT);
    return (struct option_table){.command = SESSION_COMMAND,
        .operands = "COMMAND [ARGUMENT...]",
        .summary = "use live interpreters and shells on a server",
        .before = text,
        .after = exit_text,
        .rows = rows,
        .in_order = true};
}

/* The command that the words begin with. *ret_used is the number of words of its name. */
static const struct session_command *find_command(
    const char *const *words, int count, int *ret_used)
{
    char two[NAME_LEN] = "";
    if (count > 1)
        (void)snprintf(two, sizeof(two), "%s %s", words[0], words[1]);
    for (size_t i = 0; i < session_command_count; i++) {
        *ret_used = 2;
        if (str_eq(session_commands[i].name, two))
            return &session_commands[i];
    }
    bool is_option = count > 1 && words[1][0] == '-';
    for (size_t i = 0; count && i < session_command_count; i++) {
        const struct session_command *command = &session_commands[i];
        *ret_used = 1;
        if (str_eq(command->name, words[0]))
            return command;
        /* `checkpoint ID` is an earlier name; `checkpoint --help` asks for the group. */
        if (str_eq(command->old_name, words[0]) &&
            !(is_option && str_has_prefix(command->name, words[0])))
            return command;
    }
    return NULL;
}

/* The words name no command: prints the help of a group, or the nearest command. */
static int refuse(const struct args *args, struct err *err)
{
    const char *name = args->count ? args->words[0] : "";
    const char *second = args->count > 1 ? args->words[1] : "";
    cleanup_free char *group = xasprintf("%s ", name);
    bool is_group = false;
    for (size_t i = 0; i < session_command_count; i++)
        is_group = is_group || str_has_prefix(session_commands[i].name, group);
    if (is_group && (str_eq(second, "--help") || str_eq(second, "-h"))) {
        cleanup_free char *text = list_commands(group);
        (void)printf("%s\n", text);
        return 0;
    }
    cleanup_free char *words =
        xasprintf("%s%s", is_group ? group : name, is_group ? second : "");
    if (!name[0] || (is_group && !second[0]))
        return err_set(err, ERR_INVALID, EINVAL,
            "missing command%s%s%s; `hermes session %s--help` lists them",
            is_group ? " after `" : "", name, is_group ? "`" : "", is_group ? group : "");
    struct nearest near = {.word = words};
    for (size_t i = 0; i < session_command_count; i++) {
        const char *space = strchr(session_commands[i].name, ' ');
        if (!is_group == !space)
            nearest_try(&near, session_commands[i].name);
    }
    nearest_try(&near, "files");
    nearest_try(&near, "checkpoint");
    if (near.name)
        return err_set(err, ERR_INVALID, EINVAL, "unknown command `%.64s`; did you mean `%s`?",
            words, near.name);
    return err_set(err, ERR_INVALID, EINVAL,
        "unknown command `%.64s`; `hermes session %s--help` lists them", words,
        is_group ? group : "");
}

static int run_command(int argc, char **argv, struct args *args, struct err *err)
{
    cleanup_free char *text = list_commands("");
    const struct option_table table = main_table(text);
    options_parse(&table, argc, argv, take_option, args);
    int used;
    const struct session_command *command = find_command(args->words, args->count, &used);
    if (!command)
        return refuse(args, err);
    cleanup_free char **rest = xcalloc((size_t)args->count + 2, sizeof(*rest));
    int count = args->count - used + 1; /* rest[0] is the command */
    for (int i = 1; i < count; i++)
        rest[i] = (char *)args->words[used + i - 1];
    args->count = 0;
    const struct option_table own = command_table(command);
    options_parse(&own, count, rest, take_option, args);
    json_t *limits = limit_options_json(&args->limits);
    if (limits)
        (void)json_object_set_new(args->session, "limits", limits);
    if (args->count < command->least || args->count > command->most)
        options_misuse(own.command, "%s argument; usage: %s [OPTION...] %s",
            args->count < command->least ? "missing" : "unexpected", own.command,
            command->operands ? command->operands : "");
    return command->run(args, err);
}

/* Offers the ids of the sessions, when a server answers. */
static void offer_sessions(const struct complete *c, const struct client *client)
{
    json_t *answer = NULL;
    struct err err = {0};
    if (client_call(client, "GET", "/v1/sessions", NULL, &answer, &err) < 0)
        return;
    const json_t *list = json_object_get(answer, "sessions");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const char *id = json_string_value(json_object_get(one, "id"));
        const char *language = json_string_value(json_object_get(one, "language"));
        complete_offer(c, id ? id : "", language ? language : "");
    }
    json_decref(answer);
}

/* Offers the words of the names of commands that can follow. */
static void offer_names(const struct complete *c, const char *group)
{
    char last[NAME_LEN] = "";
    for (size_t i = 0; i < session_command_count; i++) {
        const char *name = session_commands[i].name;
        char word[NAME_LEN];
        if (!str_has_prefix(name, group))
            continue;
        name += strlen(group);
        (void)snprintf(word, sizeof(word), "%.*s", (int)strcspn(name, " "), name);
        if (!str_eq(word, last))
            complete_offer(c, word, strchr(name, ' ') ? "" : session_commands[i].text);
        memcpy(last, word, sizeof(last));
    }
}

static int complete_command(int argc, char **argv, const struct client *client)
{
    char **words = argv + 2;
    int count = argc - 2;
    int used = 0;
    const struct session_command *command =
        count > 1 ? find_command((const char *const *)words, count - 1, &used) : NULL;
    CLEANUP(complete_done) struct complete c = {0};
    struct option_table table = command ? command_table(command) : main_table("");
    complete_begin(&c, &table, words, count);
    cleanup_free char *group =
        xasprintf("%s%s", count > 1 ? words[0] : "", count > 1 ? " " : "");
    if (c.value_of && str_eq(c.value_of->name, "language")) {
        complete_offer(&c, "python", "");
        complete_offer(&c, "javascript", "");
        complete_offer(&c, "bash", "");
    }
    if (complete_options(&c))
        return 0;
    if (count <= 2 && (!command || used == 1))
        offer_names(&c, group);
    if (command && command->operands && strstr(command->operands, "ID") &&
        (count == used + 1 || strstr(command->operands, "ID...")))
        offer_sessions(&c, client);
    return 0;
}

static int print_man(void)
{
    const struct option_table table =
        main_table("Live interpreters and shells on a server, over its HTTP API.");
    options_man_begin(&table);
    (void)printf(".SH OPTIONS\nThese options belong to every command.\n");
    options_man_options(&table);
    (void)printf(".SH COMMANDS\n");
    for (size_t i = 0; i < session_command_count; i++) {
        const struct option_table one = command_table(&session_commands[i]);
        (void)printf(".SS %s %s\n", session_commands[i].name, one.operands ? one.operands : "");
        options_man_text(one.before);
        for (const struct option_row *row = one.rows + GLOBAL_COUNT; row->name; row++)
            (void)printf(".TP\n\\fB\\-\\-%s\\fR%s%s\n%s\n", row->name, row->value ? "=" : "",
                row->value ? row->value : "", row->text);
        if (one.more)
            (void)printf(
                ".PP\nAlso the limits of \\fBhermes\\-run\\fR(1): \\-\\-time, \\-\\-memory and "
                "so on.\n");
    }
    (void)printf(".SH NOTES\n");
    options_man_text(exit_text);
    options_man_end();
    return 0;
}

static const char *from_env(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static int dispatch(int argc, char **argv, struct args *args, struct err *err)
{
    if (argc > 1 && str_eq(argv[1], CLI_REMOTE_RUN))
        return remote_run(&args->client, argc - 1, argv + 1, err);
    if (argc > 1 && str_eq(argv[1], CLI_APPROVALS))
        return approvals_run(&args->client, argc - 1, argv + 1, err);
    if (argc > 1 && str_eq(argv[1], CLI_EXEC))
        return backend_exec_run(&args->client, argc - 1, argv + 1, err);
    if (argc > 1 && str_eq(argv[1], CLI_BACKENDS))
        return backend_list_run(&args->client, argc - 1, argv + 1, err);
    if (argc > 1 && str_eq(argv[1], CLI_REMOTE_MCP))
        return remote_mcp(argc, argv);
    if (argc > 1 && str_eq(argv[1], CLI_COMPLETE))
        return complete_command(argc, argv, &args->client);
    if (argc > 1 && str_eq(argv[1], CLI_MAN))
        return print_man();
    return run_command(argc, argv, args, err);
}

int main(int argc, char **argv)
{
    struct args args = {.session = json_object(), .exec = json_object()};
    struct err err = {0};
    const char *url = from_env("HERMES_URL");
    args.client.url = url ? url : "http://127.0.0.1:8000";
    args.client.unix_path = url ? NULL : from_env("HERMES_UNIX");
    args.client.is_default = !url && !args.client.unix_path;
    args.client.key = from_env("HERMES_API_KEY");
    (void)json_object_set_new(args.session, "language", json_string("python"));
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
    static const struct {
        const char *word, *command;
    } names[] = {{CLI_REMOTE_RUN, "hermes run"}, {CLI_APPROVALS, APPROVALS_COMMAND},
        {CLI_EXEC, "hermes exec"}, {CLI_BACKENDS, "hermes backends"}};
    const char *command = SESSION_COMMAND;
    for (size_t i = 0; argc > 1 && i < sizeof(names) / sizeof(names[0]); i++)
        command = str_eq(argv[1], names[i].word) ? names[i].command : command;
    int r = dispatch(argc, argv, &args, &err);
    json_decref(args.session);
    json_decref(args.exec);
    curl_global_cleanup();
    return output_end(command, r >= 0 ? r : output_error(command, &err));
}
