/* SPDX-License-Identifier: Apache-2.0 */

/* See origin.h. Only the spellings that browsers send are accepted. "127.1" and "0x7f000001"
 * are not addresses here, and "localhost@evil.example" is not a name. */

#include "http/origin.h"

#include "base/str.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

enum { NAME_MAX_LEN = 255, PORT_DIGITS = 5 };

/* "name", "name:80", "[::1]:80". */
struct authority {
    char name[NAME_MAX_LEN + 1]; /* without brackets and trailing dot */
    uint32_t port;               /* 0: no port */
    bool is_address;
};

static bool parse_port(const char *text, uint32_t *ret)
{
    *ret = 0;
    if (text[0] == '\0' || str_eq(text, ":"))
        return true;
    return text[0] == ':' && strlen(text) <= PORT_DIGITS + 1 &&
           str_parse_u32(text + 1, ret) == 0 && *ret >= 1 && *ret <= UINT16_MAX;
}

static bool parse_name(struct authority *a, const char *text, size_t len)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789-._";
    unsigned char address[sizeof(struct in_addr)];
    if (len > 1 && text[len - 1] == '.')
        len--;
    if (len == 0 || len > NAME_MAX_LEN || strspn(text, letters) < len)
        return false;
    memcpy(a->name, text, len);
    a->name[len] = '\0';
    a->is_address = inet_pton(AF_INET, a->name, address) == 1;
    return true;
}

static bool parse_brackets(struct authority *a, const char *text, size_t len)
{
    unsigned char address[sizeof(struct in6_addr)];
    if (len == 0 || len > NAME_MAX_LEN)
        return false;
    memcpy(a->name, text, len);
    a->name[len] = '\0';
    a->is_address = inet_pton(AF_INET6, a->name, address) == 1;
    return a->is_address;
}

static bool parse_authority(struct authority *ret, const char *text)
{
    *ret = (struct authority){0};
    if (text[0] == '[') {
        const char *end = strchr(text, ']');
        return end && parse_brackets(ret, text + 1, (size_t)(end - text) - 1) &&
               parse_port(end + 1, &ret->port);
    }
    size_t len = strcspn(text, ":");
    return parse_name(ret, text, len) && parse_port(text + len, &ret->port);
}

/* Takes the next item of a comma-separated list. False at its end. */
static bool next_item(const char **list, const char **ret, size_t *ret_len)
{
    *list += strspn(*list, ", ");
    *ret = *list;
    *ret_len = strcspn(*list, ", ");
    *list += *ret_len;
    return *ret_len > 0;
}

static bool is_named(const struct authority *a, const char *hosts)
{
    const char *item;
    size_t len;
    while (next_item(&hosts, &item, &len)) {
        struct authority one;
        char text[NAME_MAX_LEN + PORT_DIGITS + 4] = "";
        if (len >= sizeof(text))
            continue;
        memcpy(text, item, len);
        if (parse_authority(&one, text) && strcasecmp(one.name, a->name) == 0 &&
            (!one.port || one.port == a->port))
            return true;
    }
    return false;
}

bool host_is_ours(const char *host, const char *hosts)
{
    static const char local[] = "localhost";
    struct authority a;
    if (!parse_authority(&a, host))
        return false;
    size_t len = strlen(a.name);
    size_t tail = sizeof(local) - 1;
    bool is_local = len >= tail && strcasecmp(a.name + len - tail, local) == 0 &&
                    (len == tail || (len > tail + 1 && a.name[len - tail - 1] == '.'));
    return a.is_address || is_local || is_named(&a, hosts);
}

/* Without a port, the default of the page's scheme applies to both: a proxy in front of the
 * server may do TLS. */
bool origin_is_host(const char *origin, const char *host)
{
    static const struct {
        const char *text;
        uint32_t port;
    } schemes[] = {{"http://", 80}, {"https://", 443}};
    struct authority page;
    struct authority ours;
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        size_t len = strlen(schemes[i].text);
        if (strncasecmp(origin, schemes[i].text, len) != 0)
            continue;
        if (!parse_authority(&page, origin + len) || !parse_authority(&ours, host))
            return false;
        return strcasecmp(page.name, ours.name) == 0 &&
               (page.port ? page.port : schemes[i].port) ==
                   (ours.port ? ours.port : schemes[i].port);
    }
    return false;
}

bool origin_is_listed(const char *origin, const char *list)
{
    size_t size = strlen(origin);
    const char *item;
    size_t len;
    while (next_item(&list, &item, &len)) {
        if ((len == 1 && *item == '*') || (len == size && strncmp(item, origin, len) == 0))
            return true;
    }
    return false;
}
