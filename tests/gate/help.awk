# Prints the verbs of a group from the comments of the Makefile:
#     awk -v group=use -v colour=1 -f tests/gate/help.awk Makefile
# A verb with a description is a line `verb: ## group: description`. Lines are at most 80 columns wide; awk may count
# bytes, which are never fewer.

BEGIN {
    FS = ":.*## " group ": "
    width = 80
    indent = 26
    bold = colour ? "\033[1m" : ""
    verb = colour ? "\033[36m" : ""
    plain = colour ? "\033[0m" : ""
    printf "%s%s:%s\n", bold, toupper(substr(group, 1, 1)) substr(group, 2), plain
}

NF == 2 {
    printf "  %smake %-17s%s", verb, $1, plain
    column = indent - 2
    count = split($2, words, " ")
    for (i = 1; i <= count; i++) {
        if (column > indent && column + 1 + length(words[i]) > width) {
            printf "\n%24s", ""
            column = indent - 2
        }
        printf "%s%s", column < indent ? "  " : " ", words[i]
        column += length(words[i]) + (column < indent ? 2 : 1)
    }
    printf "\n"
}
