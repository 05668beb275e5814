/* SPDX-License-Identifier: Apache-2.0 */

/* From the members of an archive to one image. Everything that JSON says is checked before it
 * is used: media types by a table, digests by their form, counts by a limit. Layers that lie
 * elsewhere (URLs) are refused: Hermes fetches nothing for an image. */

#include "image/oci_archive.h"

#include "base/alloc.h"
#include "base/str.h"

#include <errno.h>
#include <string.h>

enum { MANIFESTS_MAX = 100, STRINGS_MAX = 1000 };

static const char *const index_types[] = {
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    NULL,
};
static const char *const manifest_types[] = {
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    NULL,
};
/* hermes-layer finds the packing by the first bytes. */
static const char *const layer_types[] = {
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.oci.image.layer.v1.tar+zstd",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
    NULL,
};

static bool is_one_of(const char *text, const char *const *list)
{
    for (; *list; list++) {
        if (str_eq(text, *list))
            return true;
    }
    return false;
}

const char *oci_architecture(void)
{
#if defined(__x86_64__)
    return "amd64";
#elif defined(__aarch64__)
    return "arm64";
#else
#error "name this architecture as images do"
#endif
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* At most 80 bytes of an untrusted text for a message, without control characters. */
static const char *show(const char *text, char out[static 256])
{
    char part[81];
    (void)snprintf(part, sizeof(part), "%.80s", text);
    return layer_show(part, out);
}

static int bad(struct err *err, const char *what, const char *word)
{
    char shown[256];
    return err_set(err, ERR_INVALID, EINVAL, "the archive's image cannot be imported: %s%s%s",
        what, word ? ": " : "", word ? show(word, shown) : "");
}

/* --- descriptors */

struct descriptor {
    const char *media_type;
    const char *digest;
    uint64_t size;
    const struct oci_member *member;
};

static int read_descriptor(
    const struct oci_archive *a, const json_t *value, struct descriptor *ret, struct err *err)
{
    char path[80];
    const json_t *size = json_object_get(value, "size");
    *ret = (struct descriptor){
        .media_type = text_of(value, "mediaType"), .digest = text_of(value, "digest")};
    if (json_array_size(json_object_get(value, "urls")) > 0)
        return bad(err, "a part of it lies elsewhere (urls); copy it with its layers", NULL);
    if (!oci_is_digest(ret->digest))
        return bad(err, "a digest is not sha256", ret->digest);
    if (!json_is_integer(size) || json_integer_value(size) < 0)
        return bad(err, "a size is missing", ret->digest);
    ret->size = (uint64_t)json_integer_value(size);
    (void)snprintf(path, sizeof(path), "blobs/sha256/%s", ret->digest + strlen("sha256:"));
    ret->member = oci_member_find(a, path);
    if (!ret->member)
        return bad(err, "a blob is missing", ret->digest);
    if (ret->member->size != ret->size)
        return bad(err, "a blob has another size", ret->digest);
    return 0;
}

static int read_blob(const struct oci_archive *a, const json_t *value,
    struct descriptor *ret_descriptor, json_t **ret, struct err *err)
{
    int r = read_descriptor(a, value, ret_descriptor, err);
    return r < 0 ? r
                 : oci_member_json(a, ret_descriptor->member, ret_descriptor->digest, ret, err);
}

/* --- configuration */

/* An array of strings, bounded; NULL when it is not there or something else. */
static json_t *take_strings(const json_t *value)
{
    size_t i;
    json_t *item;
    if (json_array_size(value) == 0 || json_array_size(value) > STRINGS_MAX)
        return NULL;
    json_array_foreach(value, i, item)
    {
        if (!json_is_string(item))
            return NULL;
    }
    return json_incref((json_t *)value);
}

static json_t *take_labels(const json_t *value)
{
    const char *key;
    json_t *item;
    if (json_object_size(value) == 0 || json_object_size(value) > STRINGS_MAX)
        return NULL;
    json_object_foreach((json_t *)value, key, item)
    {
        if (!json_is_string(item))
            return NULL;
    }
    return json_incref((json_t *)value);
}

static json_t *take_text(const json_t *value)
{
    return json_string_length(value) > 0 ? json_incref((json_t *)value) : NULL;
}

/* Members of the configuration that an image keeps, with their names in JSON of Hermes. */
static const struct {
    const char *from, *to;
    json_t *(*take)(const json_t *value);
} kept[] = {
    {"Env", "env", take_strings},
    {"Entrypoint", "entrypoint", take_strings},
    {"Cmd", "cmd", take_strings},
    {"WorkingDir", "working_dir", take_text},
    {"Labels", "labels", take_labels},
};

static json_t *take_config(const json_t *config)
{
    json_t *out = json_object();
    for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++) {
        json_t *value = kept[i].take(json_object_get(config, kept[i].from));
        if (value)
            (void)json_object_set_new(out, kept[i].to, value);
    }
    return out;
}

static bool is_here(const char *os, const char *architecture)
{
    return str_eq(os, "linux") && str_eq(architecture, oci_architecture());
}

/* Platform, diff ids and configuration; ret->layers has been made. */
static int read_config(const json_t *config, struct oci_image *ret, struct err *err)
{
    const char *os = text_of(config, "os"), *architecture = text_of(config, "architecture");
    const json_t *ids = json_object_get(json_object_get(config, "rootfs"), "diff_ids");
    if (!is_here(os, architecture)) {
        char platform[128];
        (void)snprintf(platform, sizeof(platform), "%.40s/%.40s", os, architecture);
        return bad(err, "it is for another platform", platform);
    }
    if (json_array_size(ids) != ret->layer_count)
        return bad(err, "the counts of layers and diff_ids differ", NULL);
    for (size_t i = 0; i < ret->layer_count; i++) {
        const char *id = json_string_value(json_array_get(ids, i));
        if (!id || !oci_is_digest(id))
            return bad(err, "a diff_id is not sha256", id);
        memcpy(ret->layers[i].diff_id, id, OCI_DIGEST_LEN + 1);
    }
    ret->config = take_config(json_object_get(config, "config"));
    return 0;
}

static int make_layers(const json_t *list, struct oci_image *ret, struct err *err)
{
    size_t count = json_array_size(list);
    if (count == 0 || count > OCI_LAYERS_MAX)
        return bad(err, count ? "it has too many layers" : "it has no layers", NULL);
    ret->layers = xcalloc(count, sizeof(*ret->layers));
    ret->layer_count = count;
    return 0;
}

/* --- OCI layout */

static int read_layers(
    const struct oci_archive *a, const json_t *manifest, struct oci_image *ret, struct err *err)
{
    const json_t *list = json_object_get(manifest, "layers");
    int r = make_layers(list, ret, err);
    for (size_t i = 0; r == 0 && i < ret->layer_count; i++) {
        const json_t *value = json_array_get(list, i);
        struct descriptor d;
        const char *type = text_of(value, "mediaType");
        if (!is_one_of(type, layer_types))
            return bad(err, "a layer has a type that cannot be imported", type);
        if ((r = read_descriptor(a, value, &d, err)) < 0)
            return r;
        ret->layers[i].file = d.member->file;
        ret->layers[i].size = d.size;
        memcpy(ret->layers[i].digest, d.digest, OCI_DIGEST_LEN + 1);
    }
    return r;
}

static int read_manifest(
    const struct oci_archive *a, const json_t *manifest, struct oci_image *ret, struct err *err)
{
    struct descriptor d;
    json_t *config = NULL;
    int r = read_layers(a, manifest, ret, err);
    if (r == 0)
        r = read_blob(a, json_object_get(manifest, "config"), &d, &config, err);
    if (r == 0)
        r = read_config(config, ret, err);
    json_decref(config);
    return r;
}

/* The manifests that a search has seen. */
struct choice {
    const char *wanted;  /* a name, or NULL */
    const json_t *found; /* the descriptor that fits */
    size_t count;        /* how many fit */
    char names[256];     /* names of the manifests that fit */
    char platforms[256]; /* platforms of the manifests that do not fit */
};

static void note(char list[static 256], const char *word)
{
    char shown[256];
    size_t n = strlen(list);
    (void)snprintf(list + n, 256 - n, "%s%s", n ? ", " : "", show(word, shown));
}

static const char *ref_name(const json_t *descriptor)
{
    return text_of(
        json_object_get(descriptor, "annotations"), "org.opencontainers.image.ref.name");
}

/* Without a platform here, the configuration names it. */
static void consider(struct choice *c, const json_t *descriptor)
{
    const json_t *platform = json_object_get(descriptor, "platform");
    const char *os = text_of(platform, "os"), *arch = text_of(platform, "architecture");
    if (c->wanted && !str_eq(ref_name(descriptor), c->wanted))
        return;
    if (platform && !is_here(os, arch)) {
        char word[128];
        (void)snprintf(word, sizeof(word), "%.40s/%.40s", os, arch);
        note(c->platforms, word);
        return;
    }
    c->found = descriptor;
    c->count++;
    note(
        c->names, *ref_name(descriptor) ? ref_name(descriptor) : text_of(descriptor, "digest"));
}

/* Chooses among the manifests of an index. */
static int choose(const json_t *index, const char *wanted, const json_t **ret, struct err *err)
{
    const json_t *list = json_object_get(index, "manifests");
    struct choice c = {.wanted = wanted};
    size_t i;
    json_t *value;
    if (json_array_size(list) > MANIFESTS_MAX)
        return bad(err, "it has too many manifests", NULL);
    json_array_foreach(list, i, value)
    {
        consider(&c, value);
    }
    if (c.count == 1) {
        *ret = c.found;
        return 0;
    }
    if (c.count > 1)
        return err_set(err, ERR_INVALID, EINVAL,
            "the archive has several images, name one of them: %s", c.names);
    if (c.platforms[0])
        return err_set(err, ERR_INVALID, EINVAL,
            "the archive has no image for linux/%s, only for %s", oci_architecture(),
            c.platforms);
    return wanted ? bad(err, "the archive has no image of this name", wanted)
                  : bad(err, "the archive has no image", NULL);
}

/* An index may lead to one more, which has the platforms. */
static int import_index(const struct oci_archive *a, const json_t *index, const char *wanted,
    bool is_inner, struct oci_image *ret, struct err *err)
{
    const json_t *chosen = NULL;
    struct descriptor d;
    json_t *blob = NULL;
    int r = choose(index, wanted, &chosen, err);
    if (r < 0)
        return r;
    if (!is_inner)
        (void)snprintf(ret->name, sizeof(ret->name), "%s", ref_name(chosen));
    if ((r = read_blob(a, chosen, &d, &blob, err)) < 0)
        return r;
    if (is_one_of(d.media_type, manifest_types)) {
        (void)snprintf(ret->manifest, sizeof(ret->manifest), "%s", d.digest);
        r = read_manifest(a, blob, ret, err);
    } else if (is_one_of(d.media_type, index_types) && !is_inner) {
        r = import_index(a, blob, NULL, true, ret, err);
    } else {
        r = bad(err, "it has a manifest of an unknown type", d.media_type);
    }
    json_decref(blob);
    return r;
}

static int import_layout(const struct oci_archive *a, const struct oci_member *index_member,
    const char *wanted, struct oci_image *ret, struct err *err)
{
    json_t *index = NULL;
    int r = oci_member_json(a, index_member, NULL, &index, err);
    if (r == 0)
        r = import_index(a, index, wanted, false, ret, err);
    json_decref(index);
    return r;
}

/* --- docker save */

static bool has_tag(const json_t *entry, const char *wanted)
{
    size_t i;
    json_t *tag;
    json_array_foreach(json_object_get(entry, "RepoTags"), i, tag)
    {
        if (str_eq(json_string_value(tag), wanted))
            return true;
    }
    return false;
}

static int choose_docker(
    const json_t *list, const char *wanted, const json_t **ret, struct err *err)
{
    size_t i;
    json_t *entry;
    json_array_foreach(list, i, entry)
    {
        if (wanted && has_tag(entry, wanted)) {
            *ret = entry;
            return 0;
        }
    }
    if (wanted)
        return bad(err, "the archive has no image of this name", wanted);
    if (json_array_size(list) != 1)
        return bad(err, "the archive has not exactly one image; name one of them", NULL);
    *ret = json_array_get(list, 0);
    return 0;
}

/* The name of a configuration is its digest: "HEX.json" or "blobs/sha256/HEX". */
static void digest_of_name(const char *name, char out[static OCI_DIGEST_LEN + 1])
{
    const char *slash = strrchr(name, '/');
    (void)snprintf(out, OCI_DIGEST_LEN + 1, "sha256:%s", slash ? slash + 1 : name);
}

static int read_docker(
    const struct oci_archive *a, const json_t *entry, struct oci_image *ret, struct err *err)
{
    const json_t *list = json_object_get(entry, "Layers");
    const char *config_name = text_of(entry, "Config");
    char digest[OCI_DIGEST_LEN + 1];
    const struct oci_member *member = oci_member_find(a, config_name);
    json_t *config = NULL;
    if (!member)
        return bad(err, "its configuration is missing", config_name);
    int r = make_layers(list, ret, err);
    for (size_t i = 0; r == 0 && i < ret->layer_count; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        const struct oci_member *m = oci_member_find(a, name);
        if (!m)
            return bad(err, "a layer is missing", name);
        ret->layers[i].file = m->file;
        ret->layers[i].size = m->size;
    }
    digest_of_name(config_name, digest);
    if (r == 0)
        r = oci_member_json(a, member, oci_is_digest(digest) ? digest : NULL, &config, err);
    if (r == 0)
        r = read_config(config, ret, err);
    json_decref(config);
    return r;
}

static int import_docker(const struct oci_archive *a, const struct oci_member *member,
    const char *wanted, struct oci_image *ret, struct err *err)
{
    const json_t *entry = NULL;
    json_t *list = NULL;
    int r = oci_member_json(a, member, NULL, &list, err);
    if (r == 0)
        r = choose_docker(list, wanted, &entry, err);
    if (r == 0) {
        const char *tag =
            json_string_value(json_array_get(json_object_get(entry, "RepoTags"), 0));
        (void)snprintf(ret->name, sizeof(ret->name), "%s", wanted ? wanted : tag ? tag : "");
        r = read_docker(a, entry, ret, err);
    }
    json_decref(list);
    return r;
}

void oci_image_done(struct oci_image *image)
{
    json_decref(image->config);
    free(image->layers);
    *image = (struct oci_image){0};
}

int oci_import(const struct oci_archive *archive, const char *wanted, struct oci_image *ret,
    struct err *err)
{
    const struct oci_member *index = oci_member_find(archive, "index.json");
    const struct oci_member *docker = oci_member_find(archive, "manifest.json");
    struct oci_image image = {0};
    int r = 0;
    if (index && oci_member_find(archive, "oci-layout")) {
        image.kind = OCI_LAYOUT;
        r = import_layout(archive, index, wanted, &image, err);
    } else if (docker) {
        image.kind = OCI_DOCKER;
        r = import_docker(archive, docker, wanted, &image, err);
    }
    if (r < 0)
        oci_image_done(&image);
    else
        *ret = image;
    return r;
}
