/* SPDX-License-Identifier: Apache-2.0 */

/* The program `hermes`: finds the command in the table and calls it. */

#include "cli/cli.h"

#include "base/nearest.h"
#include "base/str.h"
#include "cli/backend_options.h"
#include "cli/color.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/run/options.h"
#include "run/cache/cache.h"
#include "version.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static int cmd_help(int argc, char **argv);
static int cmd_version(int argc, char **argv);

const struct cli_command cli_commands[] = {
    {"run", cmd_run, &run_options, NULL, true},
    {"judge", cmd_judge, &judge_options, NULL, true},
    {"verify", cmd_verify, &verify_options, NULL, false},
    {"serve", cmd_serve, NULL, "serve the HTTP API", true},
    {"session", cmd_session, NULL, "use live interpreters and shells on a server", false},
    {"mcp", cmd_mcp, &mcp_options, NULL, true},
    {"image", cmd_image, &image_options, NULL, true},
    {"seed", cmd_seed, &seed_options, NULL, true},
    {"approvals", cmd_approvals, &approvals_options, NULL, false},
    {"exec", cmd_exec, &exec_options, NULL, false},
    {"backends", cmd_backends, &backends_options, NULL, false},
    {"doctor", cmd_doctor, &doctor_options, NULL, true},
    {"selftest", cmd_selftest, &selftest_options, NULL, true},
    {"bench", cmd_bench, &bench_options, NULL, true},
    {"runtimes", cmd_runtimes, &runtimes_options, NULL, false},
    {"completion", cmd_completion, &completion_options, NULL, false},
    {"version", cmd_version, NULL, "print the version", false},
    {"help", cmd_help, NULL, "print this text, or the help of a command", false},
};
const size_t cli_command_count = sizeof(cli_commands) / sizeof(cli_commands[0]);

static const struct cli_command hidden_commands[] = {
    {CLI_COMPLETE, cmd_complete, NULL, NULL, false},
    {CLI_MAN, cmd_man, NULL, NULL, false},
};

static void print_commands(FILE *to)
{
    (void)fprintf(to,
        "%susage:%s hermes COMMAND [OPTION...] [ARGUMENT...]\n\n"
        "Run untrusted code in a sandbox.\n\n",
        color_on(to, COLOR_STRONG), color_off(to));
    for (size_t i = 0; i < cli_command_count; i++) {
        const struct cli_command *command = &cli_commands[i];
        (void)fprintf(to, "  %-10s %s\n", command->name,
            command->options ? command->options->summary : command->text);
    }
    (void)fprintf(to, "\nRun `hermes COMMAND --help` for details.\n"
                      "First try: echo 'print(1+1)' | hermes run -l python -\n");
}

static const struct cli_command *find_command(const char *name)
{
    for (size_t i = 0; i < cli_command_count; i++) {
        if (str_eq(name, cli_commands[i].name))
            return &cli_commands[i];
    }
    for (size_t i = 0; i < sizeof(hidden_commands) / sizeof(hidden_commands[0]); i++) {
        if (str_eq(name, hidden_commands[i].name))
            return &hidden_commands[i];
    }
    return NULL;
}

static int refuse(const char *name)
{
    struct nearest near = {.word = name};
    for (size_t i = 0; i < cli_command_count; i++)
        nearest_try(&near, cli_commands[i].name);
    if (near.name)
        (void)fprintf(
            stderr, "hermes: unknown command `%s`; did you mean `%s`?\n", name, near.name);
    else
        (void)fprintf(
            stderr, "hermes: unknown command `%s`; `hermes help` lists all commands\n", name);
    return EXIT_USAGE;
}

/* `help COMMAND WORD...` is `COMMAND WORD... --help`. */
static int cmd_help(int argc, char **argv)
{
    const struct cli_command *command = argc > 1 ? find_command(argv[1]) : NULL;
    if (argc > 1 && !command)
        return refuse(argv[1]);
    if (command &&
        (command->options || command->run == cmd_serve || command->run == cmd_session)) {
        int count = command->run == cmd_session ? argc - 1 : 1;
        char **words = argv + argc - 1 - count;
        memmove(words, argv + 1, (size_t)count * sizeof(*words));
        words[count] = (char *)"--help";
        return command->run(count + 1, words);
    }
    print_commands(stdout);
    return 0;
}

static int cmd_version(int argc, char **argv)
{
    (void)printf("hermes %s\n", HERMES_VERSION);
    return 0;
}

int cli_fail(const char *command, const struct err *err)
{
    char title[32];
    (void)snprintf(title, sizeof(title), "hermes %s", command);
    return output_error(title, err);
}

/* The caller may have closed 0, 1 or 2. The next opened file would get that number, and a
 * program's output would go to it. */
static void open_standard_fds(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
            _exit(EXIT_HERMES);
    }
}

int cli_catch_signals(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

struct lang_dirs cli_dirs(void)
{
    return (struct lang_dirs){.runtimes = getenv("HERMES_RUNTIMES"),
        .more = getenv("RUNTIME_DIR"),
        .state = getenv("HERMES_STATE_DIR"),
        .seeds = getenv("HERMES_SEED_DIR"),
        .home = getenv("HOME")};
}

const char *cli_spawner_path(void)
{
    return getenv("HERMES_SPAWN");
}

int cli_cache(struct cache_settings *ret, struct err *err)
{
    return cache_settings_parse(
        getenv("HERMES_CACHE_MB"), getenv("HERMES_CACHE_SHARED"), ret, err);
}

int main(int argc, char **argv)
{
    open_standard_fds();
    (void)signal(SIGPIPE, SIG_IGN);
    bool is_in_scope = argc > 1 && str_eq(argv[1], CLI_IN_SCOPE);
    if (is_in_scope) {
        argc--;
        argv++;
    }
    if (argc < 2) {
        print_commands(stderr);
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (str_eq(name, "--help") || str_eq(name, "-h"))
        name = "help";
    if (str_eq(name, "--version") || str_eq(name, "-V"))
        name = "version";
    const struct cli_command *command = find_command(name);
    if (!command)
        return refuse(name);
    if (command->makes_boxes && !is_in_scope)
        cli_delegate(argc - 1, argv + 1);
    char title[32];
    (void)snprintf(title, sizeof(title), "hermes %s", name);
    return output_end(title, command->run(argc - 1, argv + 1));
}
