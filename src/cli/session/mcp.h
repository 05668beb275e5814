/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* `hermes mcp --url`: passes MCP messages between stdin and stdout and a server's /mcp. */

/* argv: the word, "--full" or "", the URL or "", the path of a unix socket or "". Returns the
 * exit status. */
int remote_mcp(int argc, char **argv);
