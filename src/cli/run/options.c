/* SPDX-License-Identifier: Apache-2.0 */

/* See options.h. */

#include "cli/run/options.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/limit_options.h"
#include "network/ceiling.h"
#include "network/entry.h"
#include "network/policy.h"
#include "run/spawner.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    OPT_RO = 256,
    OPT_RW,
    OPT_JSON,
    OPT_COLLECT,
    OPT_OUT,
    OPT_COMPILE_ARG,
    OPT_MIN_LEVEL,
    OPT_NETWORK,
    OPT_SECRET,
    OPT_ENTRY,
    OPT_NO_CACHE,
    OPT_BASE64,
    OPT_URL,
    OPT_UNIX,
    OPT_IMAGE,
    OPT_INSTALL,
};

static const struct option_row rows[] = {
    {"language", 'l', "LANG",
        "language or alias (see `hermes runtimes`); default: by the file's name"},
    {"file", 'f', "FILE[:NAME]",
        "put another file beside the program, as NAME; may be repeated"},
    {"entry", OPT_ENTRY, "NAME", "which of the files is run (default: FILE)"},
    {"env", 'e', "KEY=VALUE", "set a variable in the box; may be repeated"},
    {"compile-arg", OPT_COMPILE_ARG, "ARG",
        "pass an allowed option to the compiler; may be repeated"},
    {CLI_NO_CACHE(OPT_NO_CACHE)},
    {"ro", OPT_RO, "DIR[:PATH]", "mount a directory read-only, at PATH (default: /mnt/NAME)"},
    {"rw", OPT_RW, "DIR[:PATH]", "mount a directory for writing"},
    {"image", OPT_IMAGE, "NAME", "run with the packages of an image (see `hermes image`)"},
    {"install", OPT_INSTALL, NULL,
        "install requirements.txt or package.json first: one of --file, or beside FILE"},
    {CLI_NETWORK(OPT_NETWORK)},
    {CLI_SECRET(OPT_SECRET)},
    {CLI_MIN_LEVEL(OPT_MIN_LEVEL)},
    {"url", OPT_URL, "URL", "run on this server instead of this host ($HERMES_URL)"},
    {"unix", OPT_UNIX, "PATH", "the same, by the server's unix socket"},
    {"json", OPT_JSON, NULL, "print the whole answer, or the error, as JSON"},
    {"base64", OPT_BASE64, NULL, "with --json: stdout and stderr in base64"},
    {"collect", OPT_COLLECT, "GLOB",
        "bring back the files of /box that match; may be repeated"},
    {"out", OPT_OUT, "DIR", "where collected files are written (default: hermes-out)"},
    {0},
};

const struct option_table run_options = {
    .command = "hermes run",
    .operands = "FILE|- [ARG...]",
    .summary = "run a program in a box; needs no server",
    .rows = rows,
    .more = limit_options,
    .in_order = true,
    .before =
        "Runs FILE (or the program on standard input: -) in a box of its own and exits with "
        "its status. Options come before FILE; everything after FILE goes to the program.\n\n"
        "A language may have other default limits (docs/runtimes.md). With --url the program "
        "runs on a server; if the server needs a key, set HERMES_API_KEY.",
    .after =
        "Exit status: the program's own; 128+N when signal N killed it; 124 time limit; 137 "
        "memory limit; 153 output limit; the compiler's when it failed; 2 wrong usage; 125 "
        "when Hermes itself failed; 130 after Ctrl-C.\n\n"
        "Examples:\n"
        "  hermes run hello.py\n"
        "  hermes run --time 2s --memory 128m solution.c < input.txt\n"
        "  echo 'echo $((6*7))' | hermes run -l bash -\n"
        "  hermes run --json --collect '*.png' plot.py\n"
        "  hermes run --network allow=pypi.org,files.pythonhosted.org get.py\n"
        "  hermes run --url http://127.0.0.1:8000 hello.py",
};

void cli_network(const char *command, const char *value, struct network_policy **ret)
{
    struct err err = {0};
    free(*ret);
    if (network_policy_parse(value, ret, &err) < 0)
        options_refuse(command, &err);
}

static void complain(void *context, const char *key, const char *why)
{
    (void)err_set(context, ERR_INVALID, EINVAL, "%s: %s", key, why);
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "";
}

int cli_network_ceiling(struct network_ceiling *ret, struct err *err)
{
    const struct network_settings settings = {.max = NETWORK_FULL,
        .open = variable("HERMES_NETWORK_OPEN"),
        .closed = variable("HERMES_NETWORK_CLOSED"),
        .closed_names = variable("HERMES_NETWORK_CLOSED_NAMES"),
        .allowed = "",
        .resolvers = variable("HERMES_NETWORK_RESOLVERS"),
        .upstream = "",
        .credentials = "",
        .box_max = network_no_limits,
        .key_max = network_no_limits};
    return network_ceiling_make(&settings, ret, complain, err);
}

int cli_network_permit(const struct network_policy *policy,
    const struct network_ceiling **ceiling, struct err *err)
{
    static struct network_ceiling read;
    if (!policy)
        return 0;
    int r = *ceiling ? 0 : cli_network_ceiling(&read, err);
    if (r < 0)
        return r;
    *ceiling = *ceiling ? *ceiling : &read;
    return network_policy_check(policy, *ceiling, err);
}

unsigned cli_min_level(const char *command, const char *value)
{
    unsigned level;
    if (spawner_level_parse(value, &level) < 0 || level == LEVEL_NONE)
        options_wrong(command, "min-level", value, "one of full, strong, process");
    return level;
}

/* `hermes run slow.py --time 2s` runs without a limit: tells a person at a terminal. */
static void warn_of_late_option(const char *word)
{
    size_t count;
    cleanup_free struct option_row *all = options_rows(&run_options, &count);
    cleanup_free char *name = xstrndup(word, strcspn(word, "="));
    if (isatty(STDERR_FILENO) && str_has_prefix(name, "--") &&
        options_find(all, count, name + 2))
        (void)fprintf(stderr,
            "%s: warning: %s stands after FILE and goes to the program; put options before "
            "FILE\n",
            run_options.command, name);
}

static const struct option_member members[] = {
    {'l', OPTION_TEXT, offsetof(struct run_args, language)},
    {'f', OPTION_TEXTS, offsetof(struct run_args, files)},
    {OPT_ENTRY, OPTION_TEXT, offsetof(struct run_args, entry)},
    {OPT_IMAGE, OPTION_TEXT, offsetof(struct run_args, image)},
    {OPT_INSTALL, OPTION_FLAG, offsetof(struct run_args, install)},
    {OPT_COMPILE_ARG, OPTION_TEXTS, offsetof(struct run_args, compile_args)},
    {OPT_SECRET, OPTION_TEXTS, offsetof(struct run_args, secrets)},
    {OPT_URL, OPTION_TEXT, offsetof(struct run_args, url)},
    {OPT_UNIX, OPTION_TEXT, offsetof(struct run_args, unix_path)},
    {OPT_JSON, OPTION_FLAG, offsetof(struct run_args, json)},
    {OPT_NO_CACHE, OPTION_FLAG, offsetof(struct run_args, no_cache)},
    {OPT_BASE64, OPTION_FLAG, offsetof(struct run_args, base64)},
    {OPT_COLLECT, OPTION_TEXTS, offsetof(struct run_args, collect)},
    {OPT_OUT, OPTION_TEXT, offsetof(struct run_args, out_dir)},
};

static void add_share(struct run_args *args, const char *dir, bool writable)
{
    if (args->share_count == RUN_SHARES_MAX)
        options_wrong(
            run_options.command, writable ? "rw" : "ro", dir, "at most 8 directories");
    args->shares[args->share_count++] = (struct run_share){dir, writable};
}

static void take_operand(struct run_args *args, const char *word)
{
    if (args->file)
        strv_add(&args->args, word);
    else
        args->file = word;
    if (args->args.count == 1 || args->args.count == 2)
        warn_of_late_option(word);
}

static void take_option(void *to, int key, char *arg)
{
    struct run_args *args = to;
    if (limit_options_take(run_options.command, key, arg, &args->limits) ||
        options_store(members, sizeof(members) / sizeof(members[0]), args, key, arg))
        return;
    switch (key) {
    case 'e':
        if (!strchr(arg, '='))
            options_wrong(run_options.command, "env", arg, "not KEY=VALUE");
        strv_add(&args->env, arg);
        break;
    case OPT_RO:
    case OPT_RW:
        add_share(args, arg, key == OPT_RW);
        break;
    case OPT_NETWORK:
        cli_network(run_options.command, arg, &args->network);
        break;
    case OPT_MIN_LEVEL:
        args->min_level = cli_min_level(run_options.command, arg);
        break;
    case OPTION_NONE:
        take_operand(args, arg);
        break;
    default:
        break;
    }
}

/* Refuses options that a server does not offer. */
static void check_remote(const struct run_args *args)
{
    const struct {
        const char *option;
        bool is_given;
    } local[] = {{"ro or --rw", args->share_count}, {"min-level", args->min_level},
        {"no-cache", args->no_cache}};
    for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++) {
        if (local[i].is_given)
            options_misuse(run_options.command,
                "--%s works on this host only; leave out --url, --unix and HERMES_URL",
                local[i].option);
    }
}

void run_options_parse(struct run_args *args, int argc, char **argv)
{
    const char *command = run_options.command;
    const char *url = getenv("HERMES_URL");
    options_parse(&run_options, argc, argv, take_option, args);
    if (!args->file)
        options_misuse(
            command, "missing argument FILE (use - to read the program from standard input)");
    if (args->limits.disk_mb && args->limits.memory_mb &&
        args->limits.disk_mb > args->limits.memory_mb) {
        struct err err = {0};
        (void)err_field(&err, "--disk",
            "--disk %" PRIu64 "m is larger than --memory %" PRIu64
            "m, but the files of a box live in its memory; raise --memory",
            args->limits.disk_mb, args->limits.memory_mb);
        options_refuse(command, &err);
    }
    if (!args->url && !args->unix_path && url && *url)
        args->url = url;
    if (args->url || args->unix_path)
        check_remote(args);
}

void run_args_done(struct run_args *args)
{
    strv_done(&args->files);
    strv_done(&args->env);
    strv_done(&args->args);
    strv_done(&args->compile_args);
    strv_done(&args->collect);
    strv_done(&args->secrets);
}
