/* SPDX-License-Identifier: Apache-2.0 */

/* See greet.h. */

#include "http/greet.h"

#include "base/log.h"
#include "run/engine.h"
#include "run/spawner.h"
#include "state/state.h"
#include "version.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

enum { ADDRESS_MAX = 1100 };

/* Writes an address as --url or --unix takes it. */
static void write_address(int fd, char out[ADDRESS_MAX])
{
    union {
        struct sockaddr any;
        struct sockaddr_un local;
        struct sockaddr_storage room;
    } addr = {0};
    socklen_t len = sizeof(addr);
    char host[NI_MAXHOST];
    char port[NI_MAXSERV];
    out[0] = '\0';
    if (getsockname(fd, &addr.any, &len) < 0)
        return;
    if (addr.any.sa_family == AF_UNIX)
        (void)snprintf(out, ADDRESS_MAX, "--unix %s", addr.local.sun_path);
    else if (getnameinfo(&addr.any, len, host, sizeof(host), port, sizeof(port),
                 NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        (void)snprintf(out, ADDRESS_MAX,
            addr.any.sa_family == AF_INET6 ? "--url http://[%s]:%s" : "--url http://%s:%s",
            host, port);
}

void greet(const struct state *state, const int *listen_fds, unsigned count)
{
    char address[ADDRESS_MAX] = "";
    if (!log_is_terminal(STDERR_FILENO))
        return;
    (void)fprintf(stderr, "\nHermes %s is ready (isolation: %s). Ctrl-C stops it.\n",
        HERMES_VERSION, spawner_level_name(engine_report(state->engine)->level));
    for (unsigned i = count; i-- > 0;) {
        write_address(listen_fds[i], address);
        (void)fprintf(
            stderr, "  listens on  %s\n", strchr(address, ' ') ? strchr(address, ' ') + 1 : "");
    }
    if (state->keys.count)
        (void)fprintf(
            stderr, "  API keys    %zu; clients set HERMES_API_KEY\n", state->keys.count);
    else
        (void)fprintf(
            stderr, "  API keys    none: every client that reaches it may run code\n");
    (void)fprintf(
        stderr, "  try         echo 'print(6*7)' | hermes run %s -l python -\n\n", address);
}
