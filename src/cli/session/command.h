/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The commands of hermes-session: `hermes session NAME ...`. Their table is in commands.c. */

#include "cli/options.h"
#include "cli/session/client.h"
#include "lang/limits.h"

#define SESSION_COMMAND "hermes session"

enum { SESSION_WORDS_MAX = 64 };

/* The parsed command line. */
struct args {
    struct client client;
    bool json;
    const char *code;
    const char *stdin_path;
    const char *kill_job;
    const char *words[SESSION_WORDS_MAX];
    int count;
    json_t *session; /* body of POST /v1/sessions */
    json_t *exec;    /* body of POST /v1/sessions/ID/exec */
    struct run_limits limits;
    bool keep;
    bool wants_own;    /* a server for this command alone */
    bool is_given;     /* --yes */
    const char *rules; /* or NULL */
    bool recursive;
    uint64_t copies;
};

struct session_command {
    const char *name;     /* "new", or "files ls" in a group */
    const char *old_name; /* an earlier name that still works, or NULL */
    const char *operands;
    int least, most; /* number of operands */
    int (*run)(const struct args *args, struct err *err);
    const char *options; /* names of its options, with spaces between; "limits": all limits */
    const char *text;
};
extern const struct session_command session_commands[];
extern const size_t session_command_count;

/* Converts command-line text to JSON. The server accepts UTF-8 only: ends the program when it
 * is something else. */
json_t *session_text_json(const char *what, const char *text);
