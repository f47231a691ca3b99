/*
 * The pre-tokenizers by the names that GGUF files give them (tokenizer.ggml.pre): nothing but data.
 * A new one is a line of the table at the end: its names, what else the name implies, its patterns.
 *
 * Sources: the `tokenizer.json` files of the models; llama.cpp's list of the names
 * (src/llama-vocab.cpp). Where the two differ the model's own is taken.
 *
 * How patterns are written here, so that each costs linear time whatever the text:
 *   - every repeat is possessive where that changes nothing;
 *   - white space is spelt out (PCRE2's \s also has U+180E);
 *   - "white space up to the last newline" is a possessive group in place of \s*[\r\n]+ and
 *     \s*[\r\n], which match the same but would go back over each run of blanks;
 *   - [^\p{C}…] with all the classes that are not wanted stands for [\p{…}&&[^…]], which PCRE2
 *     10.42 doesn't know.
 * Letters and numbers are those of PCRE2's Unicode tables.
 */
#include "engine/tok_impl.h"

#include <string.h>

/* White space as in Unicode's White_Space property; WS_BUT_NL without CR and LF. */
#define WS_BUT_NL                                                                                  \
    "\\x{9}\\x{b}\\x{c}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{"    \
    "202f}\\x{205f}\\x{3000}"
#define WS WS_BUT_NL "\\r\\n"
#define WS_TAIL "[" WS "]+(?![^" WS "])|[" WS "]++"
/* Blanks and newlines, to the last newline of the run. */
#define TO_NEWLINE "(?:[" WS_BUT_NL "]*+[\\r\\n]++)++"
#define SYMBOLS " ?[^" WS "\\p{L}\\p{N}]++"
#define MAYBE_ONE "[^\\r\\n\\p{L}\\p{N}]?"

#define GPT2 "'(?:s|t|re|ve|m|ll|d)| ?\\p{L}++| ?\\p{N}++|" SYMBOLS "|" WS_TAIL
#define DIGIT "\\p{N}"
#define DIGITS_3 "\\p{N}{1,3}+"

/* The line of patterns that began with GPT-4: words with the sign before them, numbers in pieces,
 * signs with the newlines behind them. */
#define SHORT "'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])"
#define WORDS(number) MAYBE_ONE "\\p{L}++|" number "|" SYMBOLS "[\\r\\n]*+|" TO_NEWLINE "|" WS_TAIL
#define LLAMA3 SHORT "|" WORDS(DIGITS_3)
#define QWEN2 SHORT "|" WORDS(DIGIT)
#define QWEN35                                                                                     \
    SHORT "|" MAYBE_ONE "[\\p{L}\\p{M}]++|\\p{N}| ?[^" WS "\\p{L}\\p{M}\\p{N}]++[\\r\\n]*+|"       \
          TO_NEWLINE "|" WS_TAIL
#define SEED                                                                                       \
    SHORT "|" MAYBE_ONE "\\p{L}++|\\p{N}| ?[^" WS "\\p{L}\\p{N}\\r\\n]++|" TO_NEWLINE "|" WS_TAIL
#define BAILING "'(?:[sdmtSDMT]|[lL][lL]|[vV][eE]|[rR][eE])|" WORDS(DIGIT)
#define EXAONE_MOE                                                                                 \
    SHORT "|" MAYBE_ONE "\\p{L}\\p{M}*+(?: ?\\p{L}\\p{M}*+)*+|\\p{N}|" SYMBOLS "[\\r\\n/]?+|"      \
          TO_NEWLINE "|" WS_TAIL
#define WS_POWERS                                                                                  \
    "[" WS "]{512}(?![^" WS "])|[" WS "]{256}(?![^" WS "])|[" WS "]{128}(?![^" WS "])|["           \
    WS "]{64}(?![^" WS "])|[" WS "]{32}(?![^" WS "])|[" WS "]{16}(?![^" WS "])|["                  \
    WS "]{8}(?![^" WS "])|[" WS "]{4}(?![^" WS "])|[" WS "]{1,2}(?![^" WS "])|[" WS "]"
#define JAIS2                                                                                      \
    SHORT "|" MAYBE_ONE "\\p{L}++|" DIGITS_3 "|" SYMBOLS "[\\r\\n]*+|" TO_NEWLINE "|" WS_POWERS

/* Words are also cut where a capital follows a small letter. UP, LOW: sets without brackets. */
#define UP "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOW "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define CASED(up, low, end)                                                                        \
    MAYBE_ONE "[" up "]*[" low "]++" end "|" MAYBE_ONE "[" up "]++[" low "]*+" end "|"
#define SIGNS_SLASH SYMBOLS "[\\r\\n/]*+|" TO_NEWLINE "|" WS_TAIL
#define TEKKEN CASED(UP, LOW, "") DIGIT "|" SIGNS_SLASH
#define GPT4O CASED(UP, LOW, "(?:" SHORT ")?") DIGITS_3 "|" SIGNS_SLASH
#define YOUTU CASED(UP, LOW, "(?:" SHORT ")?") DIGIT "|" SIGNS_SLASH
#define NOT_HAN "^\\p{C}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{Han}"
#define KIMI                                                                                       \
    "\\p{Han}++|" CASED(NOT_HAN "\\p{Ll}", NOT_HAN "\\p{Lu}\\p{Lt}", "(?:" SHORT ")?")             \
    DIGITS_3 "|" SYMBOLS "[\\r\\n]*+|" TO_NEWLINE "|" WS_TAIL

/* Numbers that no letter follows. */
#define WHOLE_NUMBERS PRE_THREES "(?<!\\p{Nd})\\p{Nd}++(?![\\p{L}\\p{M}\\p{N}_])"
#define FALCON "[\\p{P}$+<=>^~|`]++"
#define PUNCTUATION "[\\p{P}$+<=>^~|]++"
#define ASCII_3 "[0-9]{3}"
#define BLOOM                                                                                      \
    " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]++"
#define NEWLINES "[^\\n]++|\\n++"

/* DeepSeek's first: one alphabet after the other. Its \p{L} of old is written out. */
#define DEEPSEEK_LETTERS                                                                           \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"                 \
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}"         \
    "\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}"                  \
    "\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}"                       \
    "\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}"                 \
    "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}"                 \
    "\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}"        \
    "\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}"         \
    "\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}"                 \
    "\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}"                  \
    "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}"           \
    "\\x{212a}-\\x{212d}"                                                                         \
    "\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}"         \
    "\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}"         \
    "\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}"                 \
    "\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}"                 \
    "\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}"             \
    "\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}"         \
    "\\x{1e900}-\\x{1e943}"
#define DEEPSEEK_SIGNS                                                                             \
    "!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}"
#define DEEPSEEK_CJK "\\x{800}-\\x{9fa5}\\x{ac00}-\\x{d7ff}"
#define NEWLINE "[\\r\\n]"
/* Blanks at the end; the look-behind keeps a run that isn't there from being tried at each blank */
#define WS_END "(?<![" WS "])[" WS "]++\\z"

#define HAN_KANA "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{30ff}]++"
#define ASCII_SIGN "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
#define DEEPSEEK3_WORDS                                                                            \
    ASCII_SIGN "[A-Za-z]++|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]++| ?[\\p{P}\\p{S}]++"
#define DEEPSEEK3 DEEPSEEK3_WORDS "[\\r\\n]*+|" TO_NEWLINE "|" WS_TAIL
#define SPARK DEEPSEEK3_WORDS "|[\\r\\n]|" WS_TAIL
#define AFMOE_SCRIPTS                                                                              \
    "["                                                                                            \
    "\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{f900}-\\x{faff}\\x{3040}-\\x{309f}"                 \
    "\\x{30a0}-\\x{30ff}\\x{ff65}-\\x{ff9f}\\x{2f00}-\\x{2fdf}\\x{e40}-\\x{e7f}"                   \
    "\\x{e80}-\\x{eff}\\x{1780}-\\x{17ff}\\x{1000}-\\x{109f}\\x{aa60}-\\x{aa7f}"                   \
    "\\x{a9e0}-\\x{a9ff}\\x{ac00}-\\x{d7af}\\x{1100}-\\x{11ff}"                                    \
    "]++"
#define YOUTU_SCRIPTS                                                                              \
    "[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]++|["                                                 \
    "\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{2014}\\x{ff1a}\\x{ff1b}"            \
    "\\x{ff0c}\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}"                                              \
    "]++|[\\x{3105}-\\x{312f}]++|" HAN_KANA

#define CHAMELEON                                                                                  \
    {"<sentinel:[0-9]++>", "IMGIMG[A-I]{1,4}Z", "[\\t\\n]|    |  ", DIGIT,                         \
     "[\\p{P}!-/:-@\\[-`{-~]", GPT2}

#define IGNORE PRE_IGNORE_MERGES
#define BOS PRE_ADD_BOS
#define NFC PRE_NFC

static const struct pre_def pre_defs[] = {
    /* names, flags, patterns */
    {"default", 0, {PUNCTUATION, GPT2, "\\p{N}++", ASCII_3}},
    {"gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum", 0, {GPT2}},
    {"jais trillion granite-docling exaone4 jina-v1-en jina-v2-code roberta-bpe", 0, {GPT2}},
    {"mpt olmo modern-bert", NFC, {GPT2}},
    {"smollm starcoder refact codeshell exaone minerva-7b mellum2", 0, {DIGIT, GPT2}},
    {"command-r", NFC, {DIGIT, GPT2}},
    {"falcon", 0, {FALCON, GPT2, ASCII_3}},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2", IGNORE | BOS, {LLAMA3}},
    {"jina-v5-nano", IGNORE | BOS, {LLAMA3}},
    {"dbrx smaug-bpe chatglm-bpe glm4", 0, {LLAMA3}},
    {"minicpm5", IGNORE, {DIGITS_3, SHORT "|" WORDS("\\p{N}++")}},
    {"jais-2", 0, {JAIS2}},
    {"qwen2 megrez kormo f2llmv2", NFC, {QWEN2}},
    {"deepseek-r1-qwen stablelm2 hunyuan solar-open grok-2", 0, {QWEN2}},
    {"qwen35", NFC, {QWEN35}},
    {"ufakzeka", 0, {WORDS(DIGIT)}},
    {"laguna", 0, {NEWLINES, QWEN2}},
    {"seed-coder", 0, {SEED}},
    {"bailingmoe bailingmoe2 llada-moe", 0, {BAILING}},
    {"exaone-moe", 0, {EXAONE_MOE}},
    {"tekken", IGNORE | BOS, {TEKKEN}},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", 0, {GPT4O}},
    {"granite-embed-multi-97m", IGNORE, {GPT4O}},
    {"tiny_aya cohere2moe", 0, {WHOLE_NUMBERS, GPT4O}},
    {"youtu", IGNORE, {YOUTU_SCRIPTS, YOUTU}},
    {"kimi-k2", 0, {KIMI}},
    {"bloom gpt3-finnish poro-chat poro", 0, {BLOOM}},
    {"viking", 0, {BLOOM, DIGIT}},
    {"superbpe", PRE_SPANS_LINES, {"\\p{N}++", PRE_THREES "\\p{Nd}++"}},
    {"deepseek-llm", 0, {NEWLINE, "[" WS "]?[" DEEPSEEK_LETTERS "]++",
      "[" WS "]?[" DEEPSEEK_SIGNS "]++", WS_END, "[" DEEPSEEK_CJK "]++", "\\p{N}++"}},
    {"deepseek-coder", 0, {NEWLINE, "[" WS "]?\\p{L}++", "[" WS "]?\\p{P}++",
      "[" DEEPSEEK_CJK "]++", DIGIT}},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4", 0, {DIGITS_3, HAN_KANA, DEEPSEEK3}},
    {"spark2_5", 0, {DIGITS_3, HAN_KANA, SPARK, DIGIT}},
    {"afmoe", 0, {PRE_THREES "\\p{N}++", AFMOE_SCRIPTS, DEEPSEEK3}},
    {"chameleon", BOS, CHAMELEON},
};

/* Whether a list of words has this one. */
static bool has_name(const char *names, const char *name, size_t n)
{
    for (const char *p = names; (p = strstr(p, name)); p += n)
        if ((p == names || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return true;
    return false;
}

const struct pre_def *pre_find(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || strchr(name, ' '))
        return NULL;
    for (size_t i = 0; i < sizeof pre_defs / sizeof *pre_defs; i++)
        if (has_name(pre_defs[i].names, name, n))
            return &pre_defs[i];
    return NULL;
}

const struct pre_def *pre_at(size_t i)
{
    return i < sizeof pre_defs / sizeof *pre_defs ? &pre_defs[i] : NULL;
}
