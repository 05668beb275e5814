/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The commands of the program `hermes`. Each has a file and a row in main.c. */

#include "base/err.h"
#include "cli/options.h"
#include "lang/state_dir.h"

#include <stdbool.h>
#include <stddef.h>

enum { EXIT_USAGE = 2, EXIT_HERMES = 125 };

int cmd_run(int argc, char **argv); /* run/run.c */
int cmd_judge(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_session(int argc, char **argv);
int cmd_approvals(int argc, char **argv);
int cmd_backends(int argc, char **argv);
int cmd_exec(int argc, char **argv);
int cmd_mcp(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_selftest(int argc, char **argv); /* selftest/selftest.c */
int cmd_runtimes(int argc, char **argv);
int cmd_bench(int argc, char **argv); /* bench/bench.c */
int cmd_image(int argc, char **argv);
int cmd_seed(int argc, char **argv);
int cmd_completion(int argc, char **argv);

/* Their options. `hermes serve` has the table of settings, `hermes session` its own program. */
extern const struct option_table approvals_options, mcp_options, judge_options, verify_options,
    doctor_options, selftest_options, image_options, seed_options, runtimes_options,
    bench_options, completion_options;

/* One row per command (main.c). */
struct cli_command {
    const char *name;
    int (*run)(int argc, char **argv);
    const struct option_table *options; /* NULL: `text` describes it */
    const char *text;
    bool makes_boxes; /* needs a delegated control group when not root */
};
extern const struct cli_command cli_commands[];
extern const size_t cli_command_count;

/* Hidden commands for shells and for the build: `hermes __complete WORD...` prints what the
 * last word can become, `hermes __man [COMMAND]` prints a man page. */
int cmd_complete(int argc, char **argv);
int cmd_man(int argc, char **argv);
#define CLI_COMPLETE "__complete"
#define CLI_MAN "__man"
#define CLI_REMOTE_RUN "__run"
#define CLI_APPROVALS "__approvals"
#define CLI_BACKENDS "__backends"
#define CLI_EXEC "__exec"
#define CLI_REMOTE_MCP "__mcp"

/* The first argument of a `hermes` that cli_delegate() executed: it does not do so again. */
#define CLI_IN_SCOPE "__in-scope"

/* Settings from the environment variables of the user. Only the function of a command calls
 * these, and passes the result on. */
struct lang_dirs cli_dirs(void);
const char *cli_spawner_path(void); /* HERMES_SPAWN, for tests; or NULL */
struct cache_settings;
int cli_cache(struct cache_settings *ret, struct err *err);
/* The ceiling of a command that needs no server: its user is the operator. */
struct network_ceiling;
int cli_network_ceiling(struct network_ceiling *ret, struct err *err);

/* Becomes a program that lies beside this one. Returns only on failure. */
int cli_become(const char *command, const char *program, char **argv);

/* Becomes hermes-session with `word` before the arguments. Returns only on failure. */
int cli_become_session(const char *command, const char *word, int argc, char **argv);

/* Prints "hermes COMMAND: message" and returns the exit status of the error code. */
int cli_fail(const char *command, const struct err *err);

/* Option rows that several commands share. */
#define CLI_MIN_LEVEL(key)                                                                     \
    "min-level", key, "LEVEL",                                                                 \
        "refuse to run below this isolation: full, strong (default) or process"
#define CLI_NETWORK(key)                                                                       \
    "network", key, "POLICY",                                                                  \
        "what the box may reach: none (default), full (public addresses), allow=HOST,... or, " \
        "on a server, ask=HOST,..."
#define CLI_SECRET(key)                                                                        \
    "secret", key, "NAME", "a secret of the server for requests to its host; may be repeated"
#define CLI_NO_CACHE(key)                                                                      \
    "no-cache", key, NULL, "compile again, even if the result is in the cache"

/* Parses the value of --network; *ret is NULL for none. Ends the program when it is wrong. */
struct network_policy;
void cli_network(const char *command, const char *value, struct network_policy **ret);

/* Whether the operator's ceiling, which the environment names, permits a policy (NULL: none).
 * *ceiling is read if it is NULL: the engine starts hermes-egress with it. */
int cli_network_permit(const struct network_policy *policy,
    const struct network_ceiling **ceiling, struct err *err);

/* Parses the value of --min-level. Ends the program when it is invalid. */
unsigned cli_min_level(const char *command, const char *value);

/* Executes the command again in a delegated control group if that is possible and needed;
 * otherwise returns. argv[0] is the command's name. */
void cli_delegate(int argc, char **argv);

/* Blocks SIGINT, SIGTERM and SIGHUP, also in threads made later. Returns a descriptor that
 * becomes readable when one comes, so that boxes are ended and everything is cleaned up. */
int cli_catch_signals(void);
