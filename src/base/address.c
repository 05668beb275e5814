/* SPDX-License-Identifier: Apache-2.0 */

/* See address.h. */

#include "base/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static const uint8_t v4_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

/* The first row that contains an address decides its class, so a narrow range stands before the
 * wide one around it. An address in no row is public if it is IPv4 or in 2000::/3. */
#define V4(a, b, c, d, len)                                                                    \
    {                                                                                          \
        {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d}}, ADDRESS_V4_BITS + (len)      \
    }
static const struct closed {
    struct address_range range;
    enum address_class class;
} closed[] = {
    {V4(169, 254, 169, 254, 32), ADDRESS_METADATA},
    {V4(169, 254, 170, 2, 32), ADDRESS_METADATA},
    {V4(100, 100, 100, 200, 32), ADDRESS_METADATA},
    {V4(192, 0, 0, 192, 32), ADDRESS_METADATA},
    {V4(168, 63, 129, 16, 32), ADDRESS_METADATA}, /* looks public, is a cloud's own */
    {V4(0, 0, 0, 0, 8), ADDRESS_THIS_NETWORK},
    {V4(10, 0, 0, 0, 8), ADDRESS_PRIVATE},
    {V4(172, 16, 0, 0, 12), ADDRESS_PRIVATE},
    {V4(192, 168, 0, 0, 16), ADDRESS_PRIVATE},
    {V4(100, 64, 0, 0, 10), ADDRESS_SHARED},
    {V4(127, 0, 0, 0, 8), ADDRESS_LOOPBACK},
    {V4(169, 254, 0, 0, 16), ADDRESS_LINK_LOCAL},
    {V4(192, 0, 0, 0, 24), ADDRESS_PROTOCOL},
    {V4(192, 88, 99, 0, 24), ADDRESS_6TO4},
    {V4(198, 18, 0, 0, 15), ADDRESS_BENCHMARKING},
    {V4(192, 0, 2, 0, 24), ADDRESS_DOCUMENTATION},
    {V4(198, 51, 100, 0, 24), ADDRESS_DOCUMENTATION},
    {V4(203, 0, 113, 0, 24), ADDRESS_DOCUMENTATION},
    {V4(224, 0, 0, 0, 4), ADDRESS_MULTICAST},
    {V4(240, 0, 0, 0, 4), ADDRESS_RESERVED},
    {{{{0xfd, 0, 0x0e, 0xc2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x02, 0x54}}, 128},
        ADDRESS_METADATA},
    {{{{0xfd, 0x20, 0, 0xce, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x02, 0x54}}, 128},
        ADDRESS_METADATA},
    {{{{[15] = 1}}, 128}, ADDRESS_LOOPBACK},
    {{{{0}}, 128}, ADDRESS_THIS_NETWORK},
    {{{{0xfc}}, 7}, ADDRESS_PRIVATE},
    {{{{0xfe, 0x80}}, 10}, ADDRESS_LINK_LOCAL},
    {{{{0xfe, 0xc0}}, 10}, ADDRESS_PRIVATE},
    {{{{0xff}}, 8}, ADDRESS_MULTICAST},
    {{{{0x20, 0x01, 0x0d, 0xb8}}, 32}, ADDRESS_DOCUMENTATION},
    {{{{0x3f, 0xff}}, 20}, ADDRESS_DOCUMENTATION},
    {{{{0x20, 0x01}}, 23}, ADDRESS_PROTOCOL},
    {{{{0x20, 0x02}}, 16}, ADDRESS_6TO4},
};
#undef V4

static const struct address_range v4_all = {
    {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}}, ADDRESS_V4_BITS};
static const struct address_range v6_global = {{{0x20}}, 3};

static const char *const class_names[ADDRESS_CLASS_COUNT] = {
    [ADDRESS_PUBLIC] = "public",
    [ADDRESS_THIS_NETWORK] = "this_network",
    [ADDRESS_PRIVATE] = "private",
    [ADDRESS_SHARED] = "shared",
    [ADDRESS_LOOPBACK] = "loopback",
    [ADDRESS_LINK_LOCAL] = "link_local",
    [ADDRESS_METADATA] = "metadata",
    [ADDRESS_PROTOCOL] = "reserved",
    [ADDRESS_6TO4] = "6to4",
    [ADDRESS_BENCHMARKING] = "benchmarking",
    [ADDRESS_DOCUMENTATION] = "documentation",
    [ADDRESS_MULTICAST] = "multicast",
    [ADDRESS_RESERVED] = "reserved",
    [ADDRESS_NOT_GLOBAL] = "not_global",
};

struct address address_v4(const uint8_t bytes[4])
{
    struct address a;
    memcpy(a.bytes, v4_prefix, sizeof(v4_prefix));
    memcpy(a.bytes + sizeof(v4_prefix), bytes, 4);
    return a;
}

bool address_is_v4(const struct address *a)
{
    return memcmp(a->bytes, v4_prefix, sizeof(v4_prefix)) == 0;
}

int address_parse(struct address *ret, const char *text)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, text, &v4) == 1) {
        *ret = address_v4((const uint8_t *)&v4);
        return 0;
    }
    if (inet_pton(AF_INET6, text, &v6) != 1)
        return -EINVAL;
    memcpy(ret->bytes, &v6, sizeof(ret->bytes));
    return 0;
}

/* Whether the first `bits` bits of both are equal. */
static bool is_same(const struct address *a, const struct address *b, unsigned bits)
{
    unsigned whole = bits / 8;
    unsigned rest = bits % 8;
    if (memcmp(a->bytes, b->bytes, whole) != 0)
        return false;
    return rest == 0 || (a->bytes[whole] ^ b->bytes[whole]) >> (8 - rest) == 0;
}

static bool is_zero_behind(const struct address *a, unsigned bits)
{
    struct address masked = {{0}};
    memcpy(masked.bytes, a->bytes, bits / 8);
    if (bits % 8)
        masked.bytes[bits / 8] = (uint8_t)(a->bytes[bits / 8] & 0xff << (8 - bits % 8));
    return memcmp(masked.bytes, a->bytes, sizeof(masked.bytes)) == 0;
}

/* Parses a decimal number of one to three digits. */
static int parse_length(const char *text, unsigned max, unsigned *ret)
{
    unsigned value = 0;
    size_t len = strspn(text, "0123456789");
    if (len == 0 || len > 3 || text[len] || (text[0] == '0' && len > 1))
        return -EINVAL;
    for (size_t i = 0; i < len; i++)
        value = value * 10 + (unsigned)(text[i] - '0');
    *ret = value;
    return value > max ? -EINVAL : 0;
}

int address_range_parse(struct address_range *ret, const char *text)
{
    char base[ADDRESS_TEXT];
    struct address a;
    const char *slash = strchr(text, '/');
    size_t len = slash ? (size_t)(slash - text) : strlen(text);
    if (len >= sizeof(base))
        return -EINVAL;
    memcpy(base, text, len);
    base[len] = '\0';
    if (address_parse(&a, base) < 0)
        return -EINVAL;
    unsigned before = strchr(base, ':') ? 0 : ADDRESS_V4_BITS;
    unsigned bits = 128 - before;
    if (slash && parse_length(slash + 1, 128 - before, &bits) < 0)
        return -EINVAL;
    if (!is_zero_behind(&a, before + bits))
        return -EINVAL;
    *ret = (struct address_range){.base = a, .bits = (uint8_t)(before + bits)};
    return 0;
}

void address_print(const struct address *a, char text[ADDRESS_TEXT])
{
    bool v4 = address_is_v4(a);
    text[0] = '\0';
    (void)inet_ntop(
        v4 ? AF_INET : AF_INET6, a->bytes + (v4 ? sizeof(v4_prefix) : 0), text, ADDRESS_TEXT);
}

void address_range_print(const struct address_range *range, char text[ADDRESS_TEXT])
{
    bool v4 = range->bits >= ADDRESS_V4_BITS && address_is_v4(&range->base);
    unsigned bits = v4 ? range->bits - ADDRESS_V4_BITS : range->bits;
    address_print(&range->base, text);
    size_t len = strlen(text);
    if (range->bits < 128)
        (void)snprintf(text + len, ADDRESS_TEXT - len, "/%u", bits);
}

bool address_in_range(const struct address *a, const struct address_range *range)
{
    return is_same(a, &range->base, range->bits);
}

bool address_range_covers(const struct address_range *outer, const struct address_range *inner)
{
    return inner->bits >= outer->bits && address_in_range(&inner->base, outer);
}

/* Two ranges either lie apart or one contains the other. */
static bool ranges_meet(const struct address_range *a, const struct address_range *b)
{
    return address_range_covers(a, b) || address_range_covers(b, a);
}

enum address_class address_range_classify(const struct address_range *range)
{
    for (size_t i = 0; i < sizeof(closed) / sizeof(closed[0]); i++)
        if (ranges_meet(&closed[i].range, range))
            return closed[i].class;
    return address_range_covers(&v4_all, range) || address_range_covers(&v6_global, range)
               ? ADDRESS_PUBLIC
               : ADDRESS_NOT_GLOBAL;
}

enum address_class address_classify(const struct address *a)
{
    return address_range_classify(&(struct address_range){.base = *a, .bits = 128});
}

const char *address_class_name(enum address_class c)
{
    return class_names[c];
}

bool address_is_loopback(const struct sockaddr *socket)
{
    struct address a = {0};
    if (socket->sa_family == AF_INET)
        a = address_v4((const uint8_t *)&((const struct sockaddr_in *)socket)->sin_addr);
    else if (socket->sa_family == AF_INET6)
        memcpy(a.bytes, &((const struct sockaddr_in6 *)socket)->sin6_addr, sizeof(a.bytes));
    else
        return socket->sa_family == AF_UNIX;
    return address_classify(&a) == ADDRESS_LOOPBACK;
}
