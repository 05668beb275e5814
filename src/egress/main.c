/* SPDX-License-Identifier: Apache-2.0 */

/* hermes-egress: the only way out of a box with a network. Started by the monitor, or by
 * `hermes run --network`, with a socket at EGRESS_FD (proto/egress.h). It reads the operator's
 * ceiling, opens what it needs of the host, confines itself, and serves boxes until its socket
 * closes. */

#include "egress/egress.h"

#include "base/log.h"
#include "base/os/sys.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

static int fail(const char *what, int error)
{
    log_event(LOG_ERROR, what, "error", strerror(-error), (char *)NULL);
    return 1;
}

static int open_resolver(struct egress *e)
{
    struct resolver_options options = {.server_count = e->ceiling.resolver_count};
    memcpy(options.servers, e->ceiling.resolvers, sizeof(options.servers));
    int r = resolver_new(&e->resolver, &options);
    if (r < 0)
        return r;
    e->names.fd = resolver_fd(e->resolver);
    return loop_add(e, &e->names);
}

static enum served serve_names(struct source *s)
{
    struct egress *e = s->owner;
    resolver_process(e->resolver);
    return SERVED_ALL;
}

/* A quarter of the descriptors stays free for new boxes and for the resolver. */
static void count_descriptors(struct egress *e)
{
    struct rlimit files = {.rlim_cur = 1024};
    (void)getrlimit(RLIMIT_NOFILE, &files);
    rlim_t usable = files.rlim_cur < (1u << 20) ? files.rlim_cur : 1u << 20;
    e->max_descriptors = (unsigned)(usable - usable / 4);
}

static int send_ready(int fd)
{
    const struct egress_message ready = {.kind = EGRESS_READY};
    ssize_t n = send(fd, &ready, sizeof(ready), MSG_NOSIGNAL);
    return n == (ssize_t)sizeof(ready) ? 0 : -errno;
}

int main(void)
{
    static struct egress e = {.route_fd = -EBADF};
    e.spawner = (struct source){.serve = adopt_serve, .owner = &e, .fd = EGRESS_FD};
    e.names = (struct source){.serve = serve_names, .owner = &e};
    int link = -EBADF;
    int r = sys_close_range(EGRESS_FD + 1, ~0u, 0);
    if (r == 0)
        r = confine_identity();
    if (r < 0)
        return fail("cannot give up privileges", r);
    if ((r = adopt_ceiling(&e, EGRESS_FD, &link)) < 0)
        return fail("cannot read the ceiling", r);
    if ((r = loop_init(&e)) < 0 || (r = route_open(&e)) < 0 || (r = open_resolver(&e)) < 0 ||
        (r = secrets_open(&e, link)) < 0)
        return fail("cannot open what egress needs", r);
    count_descriptors(&e);
    if ((r = confine_rest()) < 0)
        return fail("cannot confine egress", r);
    if ((r = send_ready(EGRESS_FD)) < 0 || (r = loop_add(&e, &e.spawner)) < 0)
        return fail("cannot reach the spawner", r);
    loop_run(&e);
}
