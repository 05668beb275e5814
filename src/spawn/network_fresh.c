/* SPDX-License-Identifier: Apache-2.0 */

/* See network_fresh.h. */

#include "spawn/network_fresh.h"

#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* Every packet, connection and refused attempt counts in one of the first two (what counts in
 * netstat, which takes long to read, counts in them too). Whoever uses the network at all has a
 * namespace that nobody gets after him. Flow labels are the one thing that outlives its socket
 * without a packet. */
static const char *const counters[] = {
    "/proc/self/net/snmp", "/proc/self/net/snmp6", "/proc/self/net/ip6_flowlabel"};
enum { COUNTERS = sizeof(counters) / sizeof(counters[0]), COUNTERS_MAX = 16384 };

static char fresh[COUNTERS][COUNTERS_MAX];
static unsigned fresh_sockets;

/* Sockets of the namespace, whatever their kind, and TCP connections in TIME_WAIT. The other
 * numbers of that file are the machine's. */
static int count_sockets(unsigned *ret_used, unsigned *ret_waiting)
{
    char text[512];
    ssize_t n = fs_read_small(AT_FDCWD, "/proc/self/net/sockstat", text, sizeof(text));
    if (n < 0)
        return (int)n;
    /* NOLINTNEXTLINE(cert-err34-c): numbers of the kernel's */
    return sscanf(text, "sockets: used %u TCP: inuse %*u orphan %*u tw %u", ret_used,
               ret_waiting) == 2
               ? 0
               : -EPROTO;
}

int network_learn(void)
{
    unsigned waiting;
    for (unsigned i = 0; i < COUNTERS; i++) {
        ssize_t n = fs_read_small(AT_FDCWD, counters[i], fresh[i], sizeof(fresh[i]));
        if (n == -ENOENT && i > 0)
            fresh[i][0] = '\0'; /* a kernel without IPv6 */
        else if (n < 0)
            return (int)n;
    }
    return count_sockets(&fresh_sockets, &waiting);
}

bool network_is_fresh(void)
{
    static char text[COUNTERS_MAX];
    unsigned sockets;
    unsigned waiting;
    if (count_sockets(&sockets, &waiting) < 0 || sockets != fresh_sockets || waiting)
        return false;
    for (unsigned i = 0; i < COUNTERS; i++) {
        if (fresh[i][0] && (fs_read_small(AT_FDCWD, counters[i], text, sizeof(text)) < 0 ||
                               strcmp(text, fresh[i]) != 0))
            return false;
    }
    return true;
}
