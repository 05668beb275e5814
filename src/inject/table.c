/* SPDX-License-Identifier: Apache-2.0 */

/* The table of secrets. hermes-prepare wrote it; all of it was checked there. Here only what
 * could lead outside the text is checked again. */

#include "inject/inject.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

struct source {
    const char *bytes;
    size_t len;
};

static bool is_within(const struct source *from, const struct inject_text *text)
{
    return text->at <= from->len && text->len <= from->len - text->at;
}

static gnutls_datum_t datum(const struct source *from, const struct inject_text *text)
{
    return (gnutls_datum_t){(unsigned char *)from->bytes + text->at, text->len};
}

static bool ends(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

static bool is_valid(const struct source *from, const struct inject_secret *s)
{
    return ends(s->host, sizeof(s->host)) && ends(s->header, sizeof(s->header)) &&
           is_within(from, &s->line) && is_within(from, &s->value) &&
           is_within(from, &s->certificate) && is_within(from, &s->key) &&
           is_within(from, &s->trust) && s->value.len >= SCRUB_MIN && s->value.len <= SCRUB_MAX;
}

static int load_credentials(
    struct secret *to, const struct source *from, const struct inject_secret *s)
{
    const gnutls_datum_t certificate = datum(from, &s->certificate);
    const gnutls_datum_t key = datum(from, &s->key);
    const gnutls_datum_t trust = datum(from, &s->trust);
    if (gnutls_certificate_allocate_credentials(&to->to_box) < 0 ||
        gnutls_certificate_allocate_credentials(&to->to_server) < 0)
        return -ENOMEM;
    if (gnutls_certificate_set_x509_key_mem(
            to->to_box, &certificate, &key, GNUTLS_X509_FMT_PEM) < 0 ||
        gnutls_certificate_set_x509_trust_mem(to->to_server, &trust, GNUTLS_X509_FMT_PEM) <= 0)
        return -EINVAL;
    return 0;
}

static int take_secret(
    struct secret *to, const struct source *from, const struct inject_secret *s)
{
    if (!is_valid(from, s))
        return -EBADMSG;
    memcpy(to->host, s->host, sizeof(to->host));
    memcpy(to->header, s->header, sizeof(to->header));
    to->port = s->port;
    to->line = xstrndup(from->bytes + s->line.at, s->line.len);
    to->value = xstrndup(from->bytes + s->value.at, s->value.len);
    return load_credentials(to, from, s);
}

int table_read(struct table *table, int fd)
{
    const int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
    int set = fcntl(fd, F_GET_SEALS);
    struct stat st;
    struct inject_table head;
    if (set < 0 || (set & seals) != seals || fstat(fd, &st) < 0 ||
        st.st_size < (off_t)sizeof(head) || st.st_size > INJECT_TABLE_MAX)
        return -EBADMSG;
    struct source from = {.len = (size_t)st.st_size};
    cleanup_free char *bytes = xmalloc(from.len);
    from.bytes = bytes;
    if (pread(fd, bytes, from.len, 0) != (ssize_t)from.len)
        return -EIO;
    memcpy(&head, bytes, sizeof(head));
    if (head.count == 0 || head.count > NETWORK_MAX_SECRETS)
        return -EBADMSG;
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < head.count; i++)
        r = take_secret(&table->secrets[i], &from, &head.secrets[i]);
    table->count = head.count;
    explicit_bzero(bytes, from.len);
    explicit_bzero(&head, sizeof(head));
    return r;
}

int table_rule(const struct table *table, uint32_t secrets, struct exchange_rule *ret,
    const struct secret **ret_first)
{
    const struct secret *first = NULL;
    *ret = (struct exchange_rule){0};
    for (uint32_t i = 0; i < NETWORK_MAX_SECRETS; i++) {
        const struct secret *s = &table->secrets[i];
        if (!(secrets >> i & 1))
            continue;
        if (i >= table->count ||
            (first && (strcmp(first->host, s->host) != 0 || first->port != s->port)))
            return -EINVAL;
        first = first ? first : s;
        ret->secrets[ret->count++] =
            (struct exchange_secret){.header = s->header, .line = s->line, .value = s->value};
    }
    if (!first)
        return -EINVAL;
    ret->host = first->host;
    ret->port = first->port;
    *ret_first = first;
    return 0;
}
