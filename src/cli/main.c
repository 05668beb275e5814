/* SPDX-License-Identifier: Apache-2.0 */

/* The program `hermes`: finds the command in the table and calls it. */

#include "cli/cli.h"

#include "base/str.h"
#include "cli/options.h"
#include "cli/output.h"
#include "run/spawner.h"
#include "version.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <unistd.h>

static int cmd_help(int argc, char **argv);
static int cmd_version(int argc, char **argv);

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *text;
    bool boxes; /* makes boxes, so it needs a delegated control group when not root */
} commands[] = {
    {"run", cmd_run, "run a program in a box; needs no server", true},
    {"judge", cmd_judge, "judge a solution against a problem's folder; needs no server", true},
    {"verify", cmd_verify, "check the signature of a judgement", false},
    {"serve", cmd_serve, "serve the HTTP API", true},
    {"session", cmd_session, "live interpreters and shells of a server", false},
    {"doctor", cmd_doctor, "show what this host can enforce and how to mend the rest", true},
    {"selftest", cmd_selftest, "attack the boxes of this host and show that they hold", true},
    {"bench", cmd_bench, "measure what a box costs on this host", true},
    {"runtimes", cmd_runtimes, "list the languages, their versions and what is missing", false},
    {"version", cmd_version, "print the version", false},
    {"help", cmd_help, "print this text", false},
};

static void print_commands(FILE *to)
{
    (void)fprintf(to, "usage: hermes COMMAND [OPTION...] [ARGUMENT...]\n\n"
                      "Runs code that nobody trusts, in a box.\n\n");
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        (void)fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].text);
    (void)fprintf(to, "\n`hermes COMMAND --help` tells more. First run: "
                      "echo 'print(1+1)' | hermes run -l python -\n");
}

static int cmd_help(int argc, char **argv)
{
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
    (void)fprintf(stderr, "hermes %s: %s%s%s\n", command, err->field, err->field[0] ? ": " : "",
        err->message);
    return err_table[err->code].exit_status;
}

unsigned cli_min_level(const char *command, const char *value)
{
    unsigned level;
    if (spawner_level_parse(value, &level) < 0 || level == LEVEL_NONE)
        options_wrong(command, "min-level", value, "one of full, strong, process");
    return level;
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

int main(int argc, char **argv)
{
    open_standard_fds();
    (void)signal(SIGPIPE, SIG_IGN);
    if (argc < 2) {
        print_commands(stderr);
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (str_eq(name, "--help") || str_eq(name, "-h"))
        name = "help";
    if (str_eq(name, "--version") || str_eq(name, "-V"))
        name = "version";
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (!str_eq(name, commands[i].name))
            continue;
        if (commands[i].boxes)
            cli_delegate(argc - 1, argv + 1);
        char title[32];
        (void)snprintf(title, sizeof(title), "hermes %s", name);
        return output_end(title, commands[i].run(argc - 1, argv + 1));
    }
    (void)fprintf(stderr, "hermes: unknown command `%s`; `hermes help` lists them\n", name);
    return EXIT_USAGE;
}
