/* SPDX-License-Identifier: Apache-2.0 */

/* The options of `hermes approvals`. hermes-session does the work; this table is for both. */

#include "cli/approvals_options.h"

#include "cli/cli.h"

static const struct option_row rows[] = {
    {"url", APPROVALS_URL, "URL",
        "the server (default: $HERMES_URL, else http://127.0.0.1:8000)"},
    {"unix", APPROVALS_UNIX, "PATH", "unix socket of the server (default: $HERMES_UNIX)"},
    {"json", APPROVALS_JSON, NULL, "print the server's answer, or the error, as JSON"},
    {"state", APPROVALS_STATE, "STATE",
        "ls: pending (default), approved, denied, expired, lost or all"},
    {"scope", APPROVALS_SCOPE, "SCOPE", "approve: once (default), session or always"},
    {"comment", APPROVALS_COMMENT, "TEXT", "approve, deny: a reason for the log"},
    {"head", APPROVALS_HEAD, "HASH",
        "verify: a hash that was printed before and must still be in the log"},
    {NULL, 0, NULL, NULL},
};

const struct option_table approvals_options = {.command = "hermes approvals",
    .operands = "COMMAND [ARGUMENT...]",
    .summary = "decide about effects that leave a box",
    .before = "Decides about effects that leave a box, on a server.\n\n"
              "  ls             list approvals\n"
              "  show ID        one approval\n"
              "  approve ID     let it happen\n"
              "  deny ID        refuse it\n"
              "  watch          print approvals as they come; while it runs, a person is "
              "reachable\n"
              "  rules [FILE]   print the rules, or replace them (- is stdin); for operators\n"
              "  grants         what was approved for a session or for ever\n"
              "  revoke GRANT   revoke one\n"
              "  log            print the log of decisions\n"
              "  verify         check every hash of the log",
    .after = "If the server needs a key, set HERMES_API_KEY.\n\n"
             "Exit status: 0; 1 when the log is not what was written; 2 wrong usage or refused "
             "by the server; 125 when the server cannot be reached or failed.",
    .rows = rows};
