/* SPDX-License-Identifier: Apache-2.0 */

/* See authority.h. */

#include "prepare/authority.h"

#include "base/clock.h"

#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    DAY_S = 24 * 60 * 60,
    VALID_DAYS = 3650, /* a server may run for years */
    SERIAL = 16,
    PEM_MAX = 64 << 10,
};

struct pair {
    gnutls_x509_crt_t certificate;
    gnutls_x509_privkey_t key;
};

/* Remembers the first error of a row of calls. */
static void note(int *first, int r)
{
    if (*first >= 0 && r < 0)
        *first = r;
}

static void pair_done(struct pair *p)
{
    if (p->certificate)
        gnutls_x509_crt_deinit(p->certificate);
    if (p->key)
        gnutls_x509_privkey_deinit(p->key); /* overwrites it */
    *p = (struct pair){0};
}

/* Fills in the fields that the authority and the certificates of hosts have in common. */
static int pair_init(struct pair *p, const char *name)
{
    unsigned char serial[SERIAL];
    unsigned char id[64];
    size_t id_len = sizeof(id);
    time_t now = time(NULL);
    int r = gnutls_x509_crt_init(&p->certificate);
    if (r < 0 || (r = gnutls_x509_privkey_init(&p->key)) < 0)
        return r;
    note(&r, gnutls_x509_privkey_generate(
                 p->key, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0));
    note(&r, gnutls_rnd(GNUTLS_RND_NONCE, serial, sizeof(serial)));
    serial[0] = (unsigned char)((serial[0] & 0x7f) | 1); /* positive, and not shorter */
    gnutls_x509_crt_t c = p->certificate;
    note(&r, gnutls_x509_crt_set_version(c, 3));
    note(&r, gnutls_x509_crt_set_serial(c, serial, sizeof(serial)));
    note(&r, gnutls_x509_crt_set_activation_time(c, now - DAY_S));
    note(&r, gnutls_x509_crt_set_expiration_time(c, now + (time_t)VALID_DAYS * DAY_S));
    note(&r, gnutls_x509_crt_set_dn_by_oid(
                 c, GNUTLS_OID_X520_COMMON_NAME, 0, name, (unsigned)strlen(name)));
    note(&r, gnutls_x509_crt_set_key(c, p->key));
    note(&r, gnutls_x509_crt_get_key_id(c, 0, id, &id_len));
    if (r >= 0)
        note(&r, gnutls_x509_crt_set_subject_key_id(c, id, id_len));
    return r;
}

/* Restricts the authority to these names, and to no address. */
static int constrain(gnutls_x509_crt_t c, const char *const *hosts, size_t count)
{
    static unsigned char everything[32]; /* an address and its mask */
    const gnutls_datum_t all_v4 = {everything, 8};
    const gnutls_datum_t all_v6 = {everything, 32};
    gnutls_x509_name_constraints_t names;
    int r = gnutls_x509_name_constraints_init(&names);
    if (r < 0)
        return r;
    for (size_t i = 0; i < count; i++) {
        const gnutls_datum_t host = {(unsigned char *)hosts[i], (unsigned)strlen(hosts[i])};
        note(&r, gnutls_x509_name_constraints_add_permitted(names, GNUTLS_SAN_DNSNAME, &host));
    }
    note(&r, gnutls_x509_name_constraints_add_excluded(names, GNUTLS_SAN_IPADDRESS, &all_v4));
    note(&r, gnutls_x509_name_constraints_add_excluded(names, GNUTLS_SAN_IPADDRESS, &all_v6));
    note(&r, gnutls_x509_crt_set_name_constraints(c, names, 1));
    gnutls_x509_name_constraints_deinit(names);
    return r;
}

static int make_authority(struct pair *p, const char *const *hosts, size_t count)
{
    int r = pair_init(p, "Hermes: hosts of secrets of this server");
    if (r < 0)
        return r;
    note(&r, gnutls_x509_crt_set_basic_constraints(p->certificate, 1, 0));
    note(&r, gnutls_x509_crt_set_key_usage(p->certificate, GNUTLS_KEY_KEY_CERT_SIGN));
    note(&r, constrain(p->certificate, hosts, count));
    if (r >= 0)
        note(&r, gnutls_x509_crt_sign2(
                     p->certificate, p->certificate, p->key, GNUTLS_DIG_SHA256, 0));
    return r;
}

static int make_leaf(struct pair *p, const struct pair *authority, const char *host)
{
    unsigned char id[64];
    size_t id_len = sizeof(id);
    int r = pair_init(p, strlen(host) <= 64 ? host : "host");
    if (r < 0)
        return r;
    gnutls_x509_crt_t c = p->certificate;
    note(&r, gnutls_x509_crt_set_basic_constraints(c, 0, -1));
    note(&r, gnutls_x509_crt_set_key_usage(c, GNUTLS_KEY_DIGITAL_SIGNATURE));
    note(&r, gnutls_x509_crt_set_key_purpose_oid(c, GNUTLS_KP_TLS_WWW_SERVER, 0));
    note(&r, gnutls_x509_crt_set_subject_alt_name(
                 c, GNUTLS_SAN_DNSNAME, host, (unsigned)strlen(host), GNUTLS_FSAN_SET));
    note(&r, gnutls_x509_crt_get_key_id(authority->certificate, 0, id, &id_len));
    if (r >= 0)
        note(&r, gnutls_x509_crt_set_authority_key_id(c, id, id_len));
    if (r >= 0)
        note(&r, gnutls_x509_crt_sign2(
                     c, authority->certificate, authority->key, GNUTLS_DIG_SHA256, 0));
    return r;
}

static int add_datum(struct buf *to, gnutls_datum_t *text)
{
    int r = buf_append(to, text->data, text->size);
    explicit_bzero(text->data, text->size);
    gnutls_free(text->data);
    return r < 0 ? GNUTLS_E_MEMORY_ERROR : 0;
}

static int export_certificate(gnutls_x509_crt_t c, struct buf *to)
{
    gnutls_datum_t text;
    int r = gnutls_x509_crt_export2(c, GNUTLS_X509_FMT_PEM, &text);
    return r < 0 ? r : add_datum(to, &text);
}

static int export_leaf(const struct pair *p, struct authority_leaf *leaf)
{
    gnutls_datum_t text;
    int r = export_certificate(p->certificate, &leaf->certificate);
    if (r >= 0)
        r = gnutls_x509_privkey_export2(p->key, GNUTLS_X509_FMT_PEM, &text);
    return r < 0 ? r : add_datum(&leaf->key, &text);
}

void authority_leaf_done(struct authority_leaf *leaf)
{
    if (leaf->key.data)
        explicit_bzero(leaf->key.data, leaf->key.len);
    buf_done(&leaf->key);
    buf_done(&leaf->certificate);
}

int authority_make(const char *const *hosts, size_t count, struct authority_leaf *leaves,
    struct buf *to, struct err *err)
{
    struct pair authority = {0};
    for (size_t i = 0; i < count; i++) {
        buf_init(&leaves[i].certificate, PEM_MAX);
        buf_init(&leaves[i].key, PEM_MAX);
    }
    int r = make_authority(&authority, hosts, count);
    for (size_t i = 0; r >= 0 && i < count; i++) {
        struct pair leaf = {0};
        r = make_leaf(&leaf, &authority, hosts[i]);
        if (r >= 0)
            r = export_leaf(&leaf, &leaves[i]);
        pair_done(&leaf);
    }
    if (r >= 0)
        r = export_certificate(authority.certificate, to);
    pair_done(&authority);
    return r < 0 ? err_set(err, ERR_INTERNAL, EIO, "cannot make certificates: %s",
                       gnutls_strerror(r))
                 : 0;
}

/* --- Java key stores: numbers are big-endian; strings have their length in front */

static int add_number(struct buf *to, uint64_t value, unsigned bytes)
{
    char out[8];
    for (unsigned i = 0; i < bytes; i++)
        out[i] = (char)(value >> (8 * (bytes - 1 - i)));
    return buf_append(to, out, bytes);
}

static int add_string(struct buf *to, const char *text)
{
    int r = add_number(to, strlen(text), 2);
    return r < 0 ? r : buf_append_str(to, text);
}

static int add_entry(struct buf *to, gnutls_x509_crt_t c, unsigned number)
{
    enum { TRUSTED = 2 };
    char alias[32];
    gnutls_datum_t der;
    (void)snprintf(alias, sizeof(alias), "authority-%u", number);
    if (gnutls_x509_crt_export2(c, GNUTLS_X509_FMT_DER, &der) < 0)
        return -EIO;
    int r = add_number(to, TRUSTED, 4);
    if (r == 0)
        r = add_string(to, alias);
    if (r == 0)
        r = add_number(to, (uint64_t)clock_wall_ms(), 8);
    if (r == 0)
        r = add_string(to, "X.509");
    if (r == 0)
        r = add_number(to, der.size, 4);
    if (r == 0)
        r = buf_append(to, der.data, der.size);
    gnutls_free(der.data);
    return r;
}

/* The checksum has the usual password, "changeit", in two bytes a character. */
static int add_checksum(struct buf *to)
{
    static const char password[] = "\0c\0h\0a\0n\0g\0e\0i\0t";
    unsigned char sum[20];
    gnutls_hash_hd_t hash;
    if (gnutls_hash_init(&hash, GNUTLS_DIG_SHA1) < 0)
        return -EIO;
    int r = gnutls_hash(hash, password, sizeof(password) - 1);
    note(&r, gnutls_hash(hash, "Mighty Aphrodite", 16));
    note(&r, gnutls_hash(hash, to->data, to->len));
    gnutls_hash_deinit(hash, sum);
    return r < 0 ? -EIO : buf_append(to, sum, sizeof(sum));
}

int authority_write_jks(
    const struct buf *pem, struct buf *to, unsigned *ret_count, struct err *err)
{
    const gnutls_datum_t text = {(unsigned char *)pem->data, (unsigned)pem->len};
    gnutls_x509_crt_t *list = NULL;
    unsigned count = 0;
    int r = gnutls_x509_crt_list_import2(&list, &count, &text, GNUTLS_X509_FMT_PEM, 0);
    *ret_count = 0;
    if (r < 0)
        return err_set(err, ERR_INVALID, EINVAL, "%s", gnutls_strerror(r));
    r = add_number(to, 0xfeedfeed, 4);
    if (r == 0)
        r = add_number(to, 2, 4); /* version */
    if (r == 0)
        r = add_number(to, count, 4);
    for (unsigned i = 0; i < count; i++) {
        if (r == 0)
            r = add_entry(to, list[i], i + 1);
        gnutls_x509_crt_deinit(list[i]);
    }
    gnutls_free(list);
    if (r == 0)
        r = add_checksum(to);
    *ret_count = count;
    return r < 0 ? err_set(err, ERR_INTERNAL, -r, "cannot write a key store") : 0;
}
