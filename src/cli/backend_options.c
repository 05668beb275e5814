/* SPDX-License-Identifier: Apache-2.0 */

/* The options of `hermes exec` and `hermes backends`. hermes-session does the work; these
 * tables are for both programs. */

#include "cli/backend_options.h"

#define SERVER                                                                                 \
    {"url", BACKEND_URL, "URL",                                                                \
        "the server (default: $HERMES_URL, else http://127.0.0.1:8000)"},                      \
        {"unix", BACKEND_UNIX, "PATH", "unix socket of the server (default: $HERMES_UNIX)"},   \
        {"own-server", BACKEND_OWN, NULL,                                                      \
            "start a server for this command alone, also when another one runs"},              \
    {                                                                                          \
        "json", BACKEND_JSON, NULL, "print the server's answer, or the error, as JSON"         \
    }

static const struct option_row exec_rows[] = {
    SERVER,
    {"backend", BACKEND_NAME, "NAME",
        "where it runs: a name of `hermes backends` (default: native, a box; without a server "
        "what ~/.hermes/config.yaml or $TERMINAL_ENV says)"},
    {"timeout", BACKEND_TIMEOUT, "TIME", "time for the command (default: 30s)"},
    {"stdin", BACKEND_STDIN, "FILE", "standard input of the command; - is that of hermes"},
    {"env", BACKEND_ENV, "KEY=VALUE", "set a variable for the command; may be repeated"},
    {"yes", BACKEND_YES, NULL,
        "without a server: you allow this command outside of a box, and are not asked"},
    {"rules", BACKEND_RULES, "FILE",
        "without a server: rules of approvals for this command, as JSON; - is stdin"},
    {0},
};

const struct option_table exec_options = {.command = "hermes exec",
    .operands = "COMMAND [ARGUMENT...]",
    .summary = "run a command on a backend; needs no server",
    .before = "Runs a command on a backend of a server: in a new bash session, which ends with "
              "it. Nothing runs in another place than the one that is named. Put -- before a "
              "command with options of its own.\n\n"
              "When no server is named and none answers at http://127.0.0.1:8000, the command "
              "starts one for itself, with the backends of your ~/.hermes/config.yaml and of "
              "the variables TERMINAL_*. It ends with the command. Commands outside of boxes "
              "are asked at the terminal.",
    .after =
        "If the server needs a key, set HERMES_API_KEY.\n\n"
        "Exit status: that of the command; 124 time limit; 2 wrong usage or refused by the "
        "server; 125 when the server or the backend cannot be reached or failed.",
    .rows = exec_rows};

static const struct option_row list_rows[] = {SERVER, {0}};

const struct option_table backends_options = {.command = "hermes backends",
    .operands = "",
    .summary = "list the places where sessions of a server can run",
    .before = "Lists the places where sessions of a server can run: name, kind, how the last "
              "session on it began, how long that took, and which limits it enforces. Without "
              "a server: those of your ~/.hermes/config.yaml, and on stderr its keys that are "
              "not used.",
    .after =
        "If the server needs a key, set HERMES_API_KEY.\n\n"
        "Exit status: 0; 2 wrong usage or refused by the server; 125 when the server cannot "
        "be reached or failed.",
    .rows = list_rows};
