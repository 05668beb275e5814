/* SPDX-License-Identifier: Apache-2.0 */

/* The ceiling of networks, from the settings. A proxy that is named by a name is looked up
 * here, once: hermes-egress has no name service of its own, and reads no file. */

#include "prepare/prepare.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static void complain(void *problems, const char *key, const char *why)
{
    strv_add_owned(problems, xasprintf("settings: %s: %s", key, why));
}

/* Replaces the name of the proxy by its address. */
static void resolve_upstream(struct config *c, struct strv *problems)
{
    static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    char host[NETWORK_NAME];
    char text[INET6_ADDRSTRLEN];
    struct address known;
    struct addrinfo *found = NULL;
    uint16_t port;
    if (network_upstream_split(c->network_upstream, host, &port) < 0 ||
        address_parse(&known, host) == 0)
        return; /* network_ceiling_make() complains, or takes it as it is */
    int r = getaddrinfo(host, NULL, &hints, &found);
    if (r == 0)
        r = getnameinfo(
            found->ai_addr, found->ai_addrlen, text, sizeof(text), NULL, 0, NI_NUMERICHOST);
    if (found)
        freeaddrinfo(found);
    if (r != 0) {
        cleanup_free char *why = xasprintf("`%s` has no address: %s", host, gai_strerror(r));
        complain(problems, "network_upstream", why);
        return;
    }
    free(c->network_upstream);
    c->network_upstream =
        xasprintf(strchr(text, ':') ? "http://[%s]:%u" : "http://%s:%u", text, port);
}

/* Appends the first line of the file of the credentials. */
static void read_credentials(const char *path, struct buf *to, struct strv *problems)
{
    struct err err = {0};
    if (path[0] && fs_read_trusted(path, to, &err) < 0)
        complain(problems, "network_upstream_credentials", err.message);
    else if (path[0] && to->len == 0)
        complain(problems, "network_upstream_credentials", "the file is empty");
    if (to->data)
        to->data[strcspn(to->data, "\r\n")] = '\0';
}

void prepare_network(struct prepare *p, struct strv *problems)
{
    struct config *c = &p->config;
    struct network_settings settings;
    cleanup_buf struct buf credentials;
    buf_init(&credentials, 4096);
    size_t before = problems->count;
    resolve_upstream(c, problems);
    read_credentials(c->network_upstream_credentials, &credentials, problems);
    if (problems->count > before)
        return; /* the ceiling would report the same problem again */
    config_network(c, &settings);
    if (credentials.data)
        settings.credentials = credentials.data;
    (void)network_ceiling_make(&settings, &p->ceiling, complain, problems);
}
