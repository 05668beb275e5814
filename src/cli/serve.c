/* SPDX-License-Identifier: Apache-2.0 */

/* Commands that are separate programs in the same directory: `hermes serve` executes
 * hermes-prepare, which becomes hermes-monitor; `hermes session` and `hermes run --url` execute
 * hermes-session, `hermes mcp` (mcp.c) that or hermes-mcp. */

#include "cli/cli.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int cli_become(const char *command, const char *program, char **argv)
{
    struct err err = {0};
    cleanup_free char *path = fs_beside_self(program);
    argv[0] = (char *)program;
    if (path)
        (void)execv(path, argv);
    (void)err_set(&err, ERR_UNAVAILABLE, errno, "cannot start %s: %s; is it installed?",
        path ? path : program, strerror(errno));
    return cli_fail(command, &err);
}

int cmd_serve(int argc, char **argv)
{
    return cli_become("serve", "hermes-prepare", argv);
}

int cmd_session(int argc, char **argv)
{
    return cli_become("session", "hermes-session", argv);
}

int cmd_approvals(int argc, char **argv)
{
    return cli_become_session("approvals", CLI_APPROVALS, argc, argv);
}

int cmd_backends(int argc, char **argv)
{
    return cli_become_session("backends", CLI_BACKENDS, argc, argv);
}

int cmd_exec(int argc, char **argv)
{
    return cli_become_session("exec", CLI_EXEC, argc, argv);
}

int cli_become_session(const char *command, const char *word, int argc, char **argv)
{
    cleanup_free char **all = xcalloc((size_t)argc + 2, sizeof(*all));
    all[1] = (char *)word;
    for (int i = 1; i < argc; i++)
        all[i + 1] = argv[i];
    return cli_become(command, "hermes-session", all);
}
