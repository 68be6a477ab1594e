# Reads lines of name, price and amount, with tabs between them; prints the price of one unit and the name, cheapest first.
BEGIN { FS = "\t" }
NF >= 3 && $3 > 0 { price[$1] = $2 / $3 }
END {
    while (1) {
        best = ""
        for (name in price) if (best == "" || price[name] < price[best]) best = name
        if (best == "") break
        printf "%.4f\t%s\n", price[best], best
        delete price[best]
    }
}
