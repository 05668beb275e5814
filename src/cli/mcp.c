/* SPDX-License-Identifier: Apache-2.0 */

/* hermes mcp: serves an MCP client on stdin and stdout. hermes-mcp has an engine of its own;
 * with --url or --unix, hermes-session passes the messages on to a server. */

#include "cli/cli.h"

#include "base/str.h"
#include "cli/options.h"

#include <stdlib.h>

enum { OPT_FULL = 256, OPT_URL, OPT_UNIX };

static const struct option_row options[] = {
    {"full", OPT_FULL, NULL, "offer sessions, files, a shell and judging, not only execute"},
    {"url", OPT_URL, "URL", "use this server instead ($HERMES_URL), with $HERMES_API_KEY"},
    {"unix", OPT_UNIX, "PATH", "use the server on this unix socket ($HERMES_UNIX)"},
    {0},
};

const struct option_table mcp_options = {
    .summary = "serve an MCP client on stdin and stdout; needs no server",
    .command = "hermes mcp",
    .operands = "",
    .rows = options,
    .before =
        "Serves one client of MCP (the Model Context Protocol), for example an agent that "
        "starts this command. Code runs in boxes of this machine, which end with the command.",
    .after = "Exit status: 0 when stdin has ended; 2 wrong usage; 125 when Hermes failed.\n\n"
             "Example:\n"
             "  claude mcp add hermes -- hermes mcp",
};

struct mcp_args {
    bool is_full;
    const char *url;
    const char *unix_path;
};

static void take_option(void *to, int key, char *arg)
{
    struct mcp_args *args = to;
    switch (key) {
    case OPT_FULL:
        args->is_full = true;
        break;
    case OPT_URL:
        args->url = arg;
        break;
    case OPT_UNIX:
        args->unix_path = arg;
        break;
    case OPTION_NONE:
        options_misuse(mcp_options.command, "too many arguments: `%s`", arg);
    default:
        break;
    }
}

static const char *from_environment(const char *given, const char *name)
{
    const char *value = given ? given : getenv(name);
    return value && *value ? value : NULL;
}

int cmd_mcp(int argc, char **argv)
{
    struct mcp_args args = {0};
    options_parse(&mcp_options, argc, argv, take_option, &args);
    args.url = from_environment(args.url, "HERMES_URL");
    args.unix_path = from_environment(args.unix_path, "HERMES_UNIX");
    const char *full = args.is_full ? "--full" : "";
    char *words[] = {NULL, (char *)full, (char *)(args.url ? args.url : ""),
        (char *)(args.unix_path ? args.unix_path : ""), NULL};
    if (args.url || args.unix_path)
        return cli_become_session("mcp", CLI_REMOTE_MCP, 4, words);
    words[2] = NULL;
    return cli_become("mcp", "hermes-mcp", words);
}
