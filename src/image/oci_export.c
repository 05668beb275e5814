/* SPDX-License-Identifier: Apache-2.0 */

/* Archives of images. All JSON is canonical (sorted, compact) and nothing tells the time, so
 * the same image has the same digests everywhere. */

#include "image/oci_archive.h"
#include "image/oci_spool.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "layer/tar_write.h"

#include <errno.h>
#include <string.h>

/* By enum oci_packing. */
static const char *const layer_types[] = {
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.oci.image.layer.v1.tar+zstd",
};
#define MANIFEST_TYPE "application/vnd.oci.image.manifest.v1+json"
#define CONFIG_TYPE "application/vnd.oci.image.config.v1+json"
#define INDEX_TYPE "application/vnd.oci.image.index.v1+json"

struct exporter {
    const struct oci_export *x;
    struct tar_writer out;
    struct oci_blob *blobs;
    struct err *err;
};

/* Canonical JSON with its digest. */
struct text {
    char *data;
    size_t len;
    char digest[OCI_DIGEST_LEN + 1];
};

static void text_done(struct text *t)
{
    free(t->data);
}
#define cleanup_text __attribute__((cleanup(text_done)))

/* Takes the value. */
static struct text text_of(json_t *value)
{
    struct text t = {.data = json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS)};
    json_decref(value);
    if (!t.data)
        t.data = xstrdup("null"); /* out of memory; the digest shows it */
    t.len = strlen(t.data);
    oci_digest_text(t.data, t.len, t.digest);
    return t;
}

static json_t *descriptor(const char *type, const char *digest, uint64_t size)
{
    return json_pack(
        "{s:s, s:s, s:I}", "mediaType", type, "digest", digest, "size", (json_int_t)size);
}

/* The names of the configuration in other programs' JSON. */
static const char *const names[][2] = {
    {"env", "Env"},
    {"entrypoint", "Entrypoint"},
    {"cmd", "Cmd"},
    {"working_dir", "WorkingDir"},
    {"labels", "Labels"},
};

static struct text make_config(const struct exporter *e)
{
    json_t *config = json_object(), *ids = json_array(), *history = json_array();
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        json_t *value = json_object_get(e->x->config, names[i][0]);
        if (value)
            (void)json_object_set(config, names[i][1], value);
    }
    for (size_t i = 0; i < e->x->layer_count; i++) {
        (void)json_array_append_new(ids, json_string(e->blobs[i].diff_id));
        (void)json_array_append_new(history, json_pack("{s:s}", "created_by", "hermes"));
    }
    return text_of(json_pack("{s:s, s:s, s:o, s:{s:s, s:o}, s:o}", "architecture",
        oci_architecture(), "os", "linux", "config", config, "rootfs", "type", "layers",
        "diff_ids", ids, "history", history));
}

static struct text make_manifest(const struct exporter *e, const struct text *config)
{
    json_t *layers = json_array();
    for (size_t i = 0; i < e->x->layer_count; i++)
        (void)json_array_append_new(layers,
            descriptor(layer_types[e->x->packing], e->blobs[i].digest, e->blobs[i].size));
    return text_of(
        json_pack("{s:i, s:s, s:o, s:o}", "schemaVersion", 2, "mediaType", MANIFEST_TYPE,
            "config", descriptor(CONFIG_TYPE, config->digest, config->len), "layers", layers));
}

static struct text make_index(const struct exporter *e, const struct text *manifest)
{
    json_t *entry = descriptor(MANIFEST_TYPE, manifest->digest, manifest->len);
    (void)json_object_set_new(entry, "annotations",
        json_pack("{s:s}", "org.opencontainers.image.ref.name", e->x->name));
    (void)json_object_set_new(entry, "platform",
        json_pack("{s:s, s:s}", "architecture", oci_architecture(), "os", "linux"));
    return text_of(json_pack(
        "{s:i, s:s, s:[o]}", "schemaVersion", 2, "mediaType", INDEX_TYPE, "manifests", entry));
}

static const char *hex_of(const char *digest)
{
    return digest + strlen("sha256:");
}

static int put_blob(struct exporter *e, const char *path, const struct oci_blob *b)
{
    cleanup_free uint8_t *piece = xmalloc(LAYER_PIECE);
    int r = tar_put_header(&e->out, TAR_FILE, path, NULL, b->size, 0644);
    for (uint64_t at = 0; r == 0 && at < b->size;) {
        ssize_t n = pread(b->fd, piece, LAYER_PIECE, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        r = tar_put_data(&e->out, piece, (size_t)n);
        at += (uint64_t)n;
    }
    return r < 0 ? r : tar_put_pad(&e->out, b->size);
}

static bool is_first(const struct exporter *e, size_t at)
{
    for (size_t i = 0; i < at; i++) {
        if (str_eq(e->blobs[i].digest, e->blobs[at].digest))
            return false;
    }
    return true;
}

/* A layer that comes twice is written once. */
static int put_layers(struct exporter *e, const char *before, const char *behind)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < e->x->layer_count; i++) {
        cleanup_free char *path =
            xasprintf("%s%s%s", before, hex_of(e->blobs[i].digest), behind);
        if (is_first(e, i))
            r = put_blob(e, path, &e->blobs[i]);
    }
    return r;
}

static int put_blob_text(struct exporter *e, const struct text *t)
{
    cleanup_free char *path = xasprintf("blobs/sha256/%s", hex_of(t->digest));
    return tar_put_file(&e->out, path, t->data, t->len);
}

static int put_layout(struct exporter *e)
{
    static const char version[] = "{\"imageLayoutVersion\":\"1.0.0\"}";
    cleanup_text struct text config = make_config(e);
    cleanup_text struct text manifest = make_manifest(e, &config);
    cleanup_text struct text index = make_index(e, &manifest);
    int r = tar_put_file(&e->out, "oci-layout", version, sizeof(version) - 1);
    if (r == 0)
        r = tar_put_file(&e->out, "index.json", index.data, index.len);
    if (r == 0)
        r = tar_put_header(&e->out, TAR_DIRECTORY, "blobs/", NULL, 0, 0755);
    if (r == 0)
        r = tar_put_header(&e->out, TAR_DIRECTORY, "blobs/sha256/", NULL, 0, 0755);
    if (r == 0)
        r = put_blob_text(e, &config);
    if (r == 0)
        r = put_blob_text(e, &manifest);
    return r < 0 ? r : put_layers(e, "blobs/sha256/", "");
}

static int put_docker(struct exporter *e)
{
    cleanup_text struct text config = make_config(e);
    cleanup_free char *config_name = xasprintf("%s.json", hex_of(config.digest));
    cleanup_free char *tag =
        xasprintf("%s%s", e->x->name, strchr(e->x->name, ':') ? "" : ":latest");
    json_t *layers = json_array();
    for (size_t i = 0; i < e->x->layer_count; i++) {
        cleanup_free char *path = xasprintf("%s/layer.tar", hex_of(e->blobs[i].digest));
        (void)json_array_append_new(layers, json_string(path));
    }
    cleanup_text struct text list = text_of(json_pack(
        "[{s:s, s:[s], s:o}]", "Config", config_name, "RepoTags", tag, "Layers", layers));
    int r = tar_put_file(&e->out, "manifest.json", list.data, list.len);
    if (r == 0)
        r = tar_put_file(&e->out, config_name, config.data, config.len);
    return r < 0 ? r : put_layers(e, "", "/layer.tar");
}

static int export_all(struct exporter *e)
{
    const struct oci_export *x = e->x;
    enum oci_packing packing = x->kind == OCI_DOCKER ? OCI_PLAIN : x->packing;
    for (size_t i = 0; i < x->layer_count; i++) {
        int r = oci_spool(x, x->layer_fds[i], packing, &e->blobs[i], e->err);
        if (r < 0)
            return r;
    }
    int r = x->kind == OCI_DOCKER ? put_docker(e) : put_layout(e);
    if (r == 0)
        r = tar_put_end(&e->out);
    return r < 0 ? err_set(e->err, err_code_of(-r), -r, "cannot write the archive: %s",
                       strerror(-r))
                 : 0;
}

int oci_export(const struct oci_export *x, layer_sink *write, void *context, struct err *err)
{
    struct exporter e = {
        .x = x,
        .out = {.write = write, .context = context},
        .blobs = xcalloc(x->layer_count + 1, sizeof(*e.blobs)),
        .err = err,
    };
    for (size_t i = 0; i < x->layer_count; i++)
        e.blobs[i].fd = -EBADF;
    int r = export_all(&e);
    for (size_t i = 0; i < x->layer_count; i++)
        close_fd(&e.blobs[i].fd);
    free(e.blobs);
    return r;
}
