/* SPDX-License-Identifier: Apache-2.0 */

/* hermes completion: prints a script for a shell. The script asks `hermes __complete`, which
 * starts in a millisecond, so the candidates are always those of the installed program. Also
 * the man pages, `hermes __man`. */

#include "cli/cli.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "cli/complete.h"
#include "cli/run/options.h"
#include "lang/runtime.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct {
    const char *name;
    const char *script;
} shells[] = {
    {"bash", "# bash completion for hermes. Try it: source <(hermes completion bash)\n"
             "_hermes() {\n"
             "    local line text\n"
             "    COMPREPLY=()\n"
             "    while IFS=$'\\t' read -r line text; do\n"
             "        COMPREPLY+=(\"$line\")\n"
             "    done < <(\"${COMP_WORDS[0]}\" __complete \"${COMP_WORDS[@]:1:COMP_CWORD}\" "
             "2>/dev/null)\n"
             "}\n"
             "complete -o bashdefault -o default -F _hermes hermes\n"},
    {"zsh", "#compdef hermes\n"
            "# zsh completion for hermes. Try it: source <(hermes completion zsh)\n"
            "_hermes() {\n"
            "    local -a found\n"
            "    local line text\n"
            "    while IFS=$'\\t' read -r line text; do\n"
            "        found+=(\"${line//:/\\\\:}:$text\")\n"
            "    done < <(\"${words[1]}\" __complete \"${(@)words[2,CURRENT]}\" 2>/dev/null)\n"
            "    if (( $#found )); then _describe hermes found; else _files; fi\n"
            "}\n"
            "if [[ $funcstack[1] == _hermes ]]; then _hermes \"$@\"; else compdef _hermes "
            "hermes; fi\n"},
    {"fish", "# fish completion for hermes. Try it: hermes completion fish | source\n"
             "function __hermes_complete\n"
             "    set -l words (commandline -opc)\n"
             "    set -l word (commandline -ct)\n"
             "    $words[1] __complete $words[2..-1] \"$word\" 2>/dev/null\n"
             "end\n"
             "complete -c hermes -a '(__hermes_complete)'\n"},
};

static const struct option_row no_rows[] = {{0}};

const struct option_table completion_options = {
    .command = "hermes completion",
    .operands = "bash|zsh|fish",
    .summary = "print the completion script of a shell",
    .rows = no_rows,
    .before = "Prints a script that completes commands, options, languages and session ids.",
    .after = "Exit status: 0; 2 wrong usage.\n\n"
             "Examples:\n"
             "  source <(hermes completion bash)\n"
             "  hermes completion zsh > ~/.zsh/completions/_hermes\n"
             "  hermes completion fish > ~/.config/fish/completions/hermes.fish",
};

static void take_shell(void *to, int key, char *arg)
{
    const char **shell = to;
    if (*shell)
        options_misuse(completion_options.command, "too many arguments: `%s`", arg);
    *shell = arg;
}

int cmd_completion(int argc, char **argv)
{
    const char *shell = NULL;
    options_parse(&completion_options, argc, argv, take_shell, &shell);
    for (size_t i = 0; i < sizeof(shells) / sizeof(shells[0]); i++) {
        if (str_eq(shells[i].name, shell)) {
            (void)fputs(shells[i].script, stdout);
            return 0;
        }
    }
    options_misuse(completion_options.command,
        shell ? "unknown shell `%s`; use bash, zsh or fish"
              : "missing argument: bash, zsh or fish",
        shell);
}

/* Reads what hermes-prepare prints for --settings. NULL when it cannot be started. */
static FILE *open_settings(pid_t *ret_pid)
{
    cleanup_free char *path = fs_beside_self("hermes-prepare");
    char *const argv[] = {(char *)"hermes-prepare", (char *)"--settings", NULL};
    posix_spawn_file_actions_t actions;
    int pair[2];
    if (!path || pipe2(pair, O_CLOEXEC) < 0)
        return NULL;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, pair[1], STDOUT_FILENO);
    int r = posix_spawn(ret_pid, path, &actions, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(pair[1]);
    FILE *f = r == 0 ? fdopen(pair[0], "r") : NULL;
    if (!f)
        (void)close(pair[0]);
    return f;
}

/* Makes a row of "| `key` | `ENV`, `ENV` | `default` | text |"; false for other lines. */
static bool take_setting(char *line, struct option_row *ret, int key)
{
    char *cell[4];
    char *at = line;
    for (int i = 0; i < 4; i++) {
        if (!str_has_prefix(at, "| "))
            return false;
        cell[i] = at + 2;
        at = i < 3 ? strstr(cell[i], " |") : strrchr(cell[i], '|');
        if (i == 2 && cell[2][0] == '|') { /* without a default the cell is empty */
            cell[3] = cell[2] + 2;
            cell[2] = (char *)"";
            at = strrchr(cell[3], '|');
            i = 3;
        }
        if (!at)
            return false;
        *at++ = '\0';
    }
    if (cell[0][0] != '`')
        return false;
    char *name = xstrndup(cell[0] + 1, strcspn(cell[0] + 1, "`"));
    for (char *p = name; *p; p++)
        *p = *p == '_' ? '-' : *p;
    size_t len = strlen(cell[3]);
    *ret = (struct option_row){name, key, "VALUE",
        xasprintf("%.*s%s%s (environment: %s)",
            (int)(len && cell[3][len - 1] == ' ' ? len - 1 : len), cell[3],
            cell[2][0] ? "; default " : "", cell[2], cell[1])};
    for (char *p = (char *)ret->text; *p; p++)
        *p = *p == '`' ? '\'' : *p;
    return true;
}

/* The settings of a server as options. */
static const struct option_row *serve_rows(void)
{
    enum { ROWS_MAX = 256, LINE_MAX_LEN = 2048, KEY_FIRST = 256 };
    static struct option_row rows[ROWS_MAX + 1];
    char line[LINE_MAX_LEN];
    pid_t pid;
    size_t count = 0;
    FILE *f = rows[0].name ? NULL : open_settings(&pid);
    if (!f)
        return rows;
    while (count < ROWS_MAX && fgets(line, sizeof(line), f))
        count += take_setting(line, &rows[count], KEY_FIRST + (int)count);
    (void)fclose(f);
    (void)waitpid(pid, NULL, 0);
    return rows;
}

static const struct option_table serve_options = {
    .command = "hermes serve",
    .summary = "serve the HTTP API",
    .rows = no_rows,
    .more = serve_rows,
    .is_foreign = true,
    .before = "Serves the HTTP API on 127.0.0.1:8000. Settings come from the command line, the "
              "environment, .env and /etc/hermes/hermes.conf, in this order.",
    .after =
        "Exit status: 0 after SIGTERM or Ctrl-C; 2 invalid settings; 125 when Hermes itself "
        "failed.",
};

static const struct option_table *options_of(const char *name)
{
    for (size_t i = 0; i < cli_command_count; i++) {
        if (str_eq(cli_commands[i].name, name) && cli_commands[i].options)
            return cli_commands[i].options;
    }
    return str_eq(name, "serve") ? &serve_options : NULL;
}

static void offer_languages(const struct complete *c)
{
    CLEANUP(runtime_registry_done) struct runtime_registry all = {0};
    struct err err = {0};
    const struct lang_dirs dirs = cli_dirs();
    if (runtime_load(&all, &dirs, NULL, &err) < 0)
        return;
    for (size_t i = 0; i < all.count; i++)
        complete_offer(c, all.items[i].name, all.items[i].available ? "" : "not installed");
}

static void offer_commands(const struct complete *c)
{
    for (size_t i = 0; i < cli_command_count; i++)
        complete_offer(c, cli_commands[i].name,
            cli_commands[i].options ? cli_commands[i].options->summary : cli_commands[i].text);
}

int cmd_complete(int argc, char **argv)
{
    static const struct option_table none = {.rows = no_rows};
    const char *command = argc > 2 ? argv[1] : NULL;
    const struct option_table *table = options_of(command);
    CLEANUP(complete_done) struct complete c = {0};
    if (str_eq(command, "session"))
        return cli_become_session("session", CLI_COMPLETE, argc - 1, argv + 1);
    complete_begin(
        &c, table ? table : &none, argv + (command ? 2 : 1), argc - (command ? 2 : 1));
    if (!command || str_eq(command, "help")) {
        offer_commands(&c);
        return 0;
    }
    if (!table)
        return 0;
    if (c.value_of && str_eq(c.value_of->value, "LANG"))
        offer_languages(&c);
    if (!complete_options(&c) && table == &completion_options) {
        for (size_t i = 0; i < sizeof(shells) / sizeof(shells[0]); i++)
            complete_offer(&c, shells[i].name, "");
    }
    return 0;
}

/* The page of the program itself: its commands instead of options. */
static void man_of_all(void)
{
    static const struct option_table all = {
        .command = "hermes",
        .operands = "COMMAND [ARGUMENT...]",
        .summary = "run untrusted code in a sandbox",
        .before =
            "Runs untrusted programs in boxes made of namespaces, control groups, "
            "a system call filter and Landlock rules. Each command has a page of its own: "
            "hermes-run(1), hermes-serve(1) and so on.",
    };
    options_man_begin(&all);
    (void)printf(".SH COMMANDS\n");
    for (size_t i = 0; i < cli_command_count; i++) {
        (void)printf(".TP\n\\fB%s\\fR\n", cli_commands[i].name);
        options_man_text(
            cli_commands[i].options ? cli_commands[i].options->summary : cli_commands[i].text);
    }
    (void)printf(".SH SEE ALSO\n\\fBhermes\\-run\\fR(1), \\fBhermes\\-serve\\fR(1), "
                 "\\fBhermes\\-session\\fR(1)\n");
}

int cmd_man(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : NULL;
    const struct option_table *table = options_of(command);
    if (str_eq(command, "session"))
        return cli_become_session("session", CLI_MAN, argc - 1, argv + 1);
    if (command && !table)
        return EXIT_USAGE;
    if (table)
        options_man(table);
    else
        man_of_all();
    return 0;
}
