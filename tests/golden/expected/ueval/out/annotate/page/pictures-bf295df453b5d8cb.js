plait("pictures-bf295df453b5d8cb.js",[["[WEBP 12x8 e1cd7d26547060b1]",12,8],["[WEBP 24x24 ff246c142b851309]",24,24]]);
