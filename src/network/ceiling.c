/* SPDX-License-Identifier: Apache-2.0 */

/* See ceiling.h. A ceiling that would promise more than hermes-egress can keep is refused here,
 * with the setting that is at fault. */

#include "network/ceiling.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/str.h"
#include "network/entry.h"
#include "network/policy.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UPSTREAM_SCHEME "http://"

struct making {
    const struct network_settings *settings;
    struct network_ceiling *ceiling;
    network_complain *complain;
    void *context;
    bool is_wrong;
};

static __attribute__((format(printf, 3, 4))) void wrong(
    struct making *m, const char *key, const char *format, ...)
{
    char why[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    m->is_wrong = true;
    if (m->complain)
        m->complain(m->context, key, why);
}

int network_max_parse(const char *text, uint64_t *ret)
{
    static const enum network_mode modes[] = {NETWORK_NONE, NETWORK_ALLOW, NETWORK_FULL};
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        if (str_eq(text, network_mode_name(modes[i]))) {
            *ret = modes[i];
            return 0;
        }
    }
    return -EINVAL;
}

/* One setting that is a list: how an item is read, and where it goes. */
struct list {
    const char *key;
    const char *text;
    uint32_t max;
    uint32_t *count;
    void (*take)(struct making *m, const struct list *list, const char *item);
};

static void take_all(struct making *m, const struct list *list)
{
    cleanup_free char *copy = xstrdup(list->text);
    char *save = NULL;
    for (char *item = strtok_r(copy, ", \t", &save); item;
         item = strtok_r(NULL, ", \t", &save)) {
        if (*list->count == list->max) {
            wrong(m, list->key, "there are more than %u", list->max);
            return;
        }
        list->take(m, list, item);
    }
}

static bool read_range(
    struct making *m, const struct list *list, const char *item, struct address_range *ret)
{
    if (address_range_parse(ret, item) == 0)
        return true;
    wrong(m, list->key,
        "`%.64s` is not an address or a range such as 10.1.0.0/16 (the bits behind the length "
        "are zero)",
        item);
    return false;
}

/* Public addresses need no entry. Loopback and multicast addresses can never be reached from
 * a box. */
static void take_open(struct making *m, const struct list *list, const char *item)
{
    struct network_ceiling *c = m->ceiling;
    struct address_range range;
    if (!read_range(m, list, item, &range))
        return;
    enum address_class class = address_range_classify(&range);
    if (class == ADDRESS_PUBLIC)
        wrong(m, list->key, "`%.64s` is public: there is nothing to open", item);
    else if (class == ADDRESS_LOOPBACK || class == ADDRESS_MULTICAST ||
             class == ADDRESS_THIS_NETWORK)
        wrong(m, list->key, "`%.64s` is %s: no box reaches that outside of itself", item,
            address_class_name(class));
    else
        c->open[c->open_count++] = range;
}

static void take_closed(struct making *m, const struct list *list, const char *item)
{
    struct network_ceiling *c = m->ceiling;
    struct address_range range;
    if (!read_range(m, list, item, &range))
        return;
    for (uint32_t i = 0; i < c->open_count; i++) {
        char text[ADDRESS_TEXT];
        address_range_print(&c->open[i], text);
        if (address_range_covers(&range, &c->open[i]))
            wrong(
                m, list->key, "`%.64s` closes all of %s, which network_open opens", item, text);
    }
    c->closed[c->closed_count++] = range;
}

static void take_closed_name(struct making *m, const struct list *list, const char *item)
{
    struct network_ceiling *c = m->ceiling;
    char *name = c->closed_names[c->closed_name_count];
    size_t len = strlen(item);
    for (size_t i = 0; i < len && i < NETWORK_NAME - 1; i++)
        name[i] = item[i] >= 'A' && item[i] <= 'Z' ? (char)(item[i] + 32) : item[i];
    name[len < NETWORK_NAME ? len : NETWORK_NAME - 1] = '\0';
    if (len >= NETWORK_NAME || !network_name_is_valid(name))
        wrong(m, list->key, "`%.64s` is not a name such as example.com", item);
    else
        c->closed_name_count++;
}

static bool is_open(const struct network_ceiling *c, const struct address_range *range)
{
    for (uint32_t i = 0; i < c->open_count; i++) {
        if (address_range_covers(&c->open[i], range))
            return true;
    }
    return false;
}

static void take_allowed(struct making *m, const struct list *list, const char *item)
{
    struct network_ceiling *c = m->ceiling;
    struct network_entry entry;
    struct err err = {0};
    if (network_entry_parse(&entry, item, &err) < 0) {
        wrong(m, list->key, "%s", err.message);
        return;
    }
    enum address_class class =
        entry.target == TARGET_RANGE ? address_range_classify(&entry.range) : ADDRESS_PUBLIC;
    if (class != ADDRESS_PUBLIC && !is_open(c, &entry.range))
        wrong(m, list->key, "`%.64s` is closed (%s); open it in network_open", item,
            address_class_name(class));
    else
        c->allowed[c->allowed_count++] = entry;
}

static void take_resolver(struct making *m, const struct list *list, const char *item)
{
    struct network_ceiling *c = m->ceiling;
    if (address_parse(&c->resolvers[c->resolver_count], item) < 0)
        wrong(m, list->key, "`%.64s` is not an address", item);
    else
        c->resolver_count++;
}

int network_upstream_split(const char *text, char host[NETWORK_NAME], uint16_t *ret_port)
{
    if (!str_has_prefix(text, UPSTREAM_SCHEME))
        return -EINVAL;
    const char *at = text + strlen(UPSTREAM_SCHEME);
    const char *end = at[0] == '[' ? strchr(at, ']') : strrchr(at, ':');
    const char *colon = end && at[0] == '[' ? end + 1 : end;
    if (!colon || colon[0] != ':')
        return -EINVAL;
    at += at[0] == '[';
    size_t len = (size_t)(end - at);
    uint32_t port;
    cleanup_free char *number = xstrndup(colon + 1, strcspn(colon + 1, "/"));
    const char *rest = colon + 1 + strlen(number);
    if (len == 0 || len >= NETWORK_NAME || str_parse_u32(number, &port) < 0 || port == 0 ||
        port > UINT16_MAX || !(str_eq(rest, "") || str_eq(rest, "/")))
        return -EINVAL;
    memcpy(host, at, len);
    host[len] = '\0';
    *ret_port = (uint16_t)port;
    return 0;
}

/* With a proxy that resolves names, the addresses behind them are not known here. */
static void check_upstream(struct making *m)
{
    const struct network_settings *s = m->settings;
    if (s->max == NETWORK_FULL && !s->upstream_filters)
        wrong(m, "network_upstream",
            "with network_max = full the proxy must refuse closed addresses: if it does, set "
            "network_upstream_filters = true; otherwise set network_max = allow");
    if (s->max == NETWORK_ALLOW && s->upstream_resolves && !s->upstream_filters &&
        !s->allowed[0])
        wrong(m, "network_upstream_resolves",
            "the proxy alone knows which addresses a name has: list the names in "
            "network_allowed, or set network_upstream_filters = true if the proxy refuses "
            "closed addresses");
}

static void take_upstream(struct making *m)
{
    const struct network_settings *s = m->settings;
    struct network_ceiling *c = m->ceiling;
    char host[NETWORK_NAME];
    if (!s->upstream[0]) {
        if (s->upstream_filters || s->upstream_resolves || s->credentials[0])
            wrong(m,
                s->upstream_filters    ? "network_upstream_filters"
                : s->upstream_resolves ? "network_upstream_resolves"
                                       : "network_upstream_credentials",
                "it needs network_upstream");
        return;
    }
    if (network_upstream_split(s->upstream, host, &c->upstream_port) < 0 ||
        address_parse(&c->upstream, host) < 0)
        wrong(m, "network_upstream", "`%.64s` is not http://ADDRESS:PORT", s->upstream);
    if (strlen(s->credentials) >= sizeof(c->upstream_credentials) ||
        (s->credentials[0] && !strchr(s->credentials, ':')))
        wrong(m, "network_upstream_credentials", "the file has USER:PASSWORD, at most %d bytes",
            NETWORK_CREDENTIALS - 1);
    else
        memcpy(c->upstream_credentials, s->credentials, strlen(s->credentials));
    c->upstream_filters = s->upstream_filters;
    c->upstream_resolves = s->upstream_resolves;
    check_upstream(m);
}

int network_ceiling_make(const struct network_settings *s, struct network_ceiling *ret,
    network_complain *complain, void *context)
{
    struct making m = {.settings = s, .ceiling = ret, .complain = complain, .context = context};
    *ret = (struct network_ceiling){
        .max_mode = s->max, .box_max = s->box_max, .key_max = s->key_max};
    const struct list lists[] = {/* the open ranges first: others are compared with them */
        {"network_open", s->open, NETWORK_MAX_RANGES, &ret->open_count, take_open},
        {"network_closed", s->closed, NETWORK_MAX_RANGES, &ret->closed_count, take_closed},
        {"network_closed_names", s->closed_names, NETWORK_MAX_NAMES, &ret->closed_name_count,
            take_closed_name},
        {"network_allowed", s->allowed, NETWORK_MAX_ENTRIES, &ret->allowed_count, take_allowed},
        {"network_resolvers", s->resolvers, NETWORK_MAX_RESOLVERS, &ret->resolver_count,
            take_resolver}};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        take_all(&m, &lists[i]);
    if (s->allowed[0] && s->max != NETWORK_ALLOW)
        wrong(&m, "network_allowed", "it needs network_max = allow");
    take_upstream(&m);
    return m.is_wrong ? -EINVAL : 0;
}
